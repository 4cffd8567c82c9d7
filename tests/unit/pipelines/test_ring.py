from hypothesis import given
from hypothesis import strategies as st

from pipelines import ring
from pipelines.ring import Ring

RECIPIENT, SENDER = b"r" * 32, b"s" * 32


def message_id(n):
    return n.to_bytes(16, "big")


def short_hash(n):
    return n.to_bytes(8, "big")


def add(one, n, value=None):
    one.add(RECIPIENT, SENDER, message_id(n), short_hash(n if value is None else value))


def get(one, n):
    return one.get(RECIPIENT, SENDER, message_id(n))


def test_an_id_is_found_with_its_hash():
    one = Ring(b"", 4)
    add(one, 1)
    assert get(one, 1) == short_hash(1)
    assert get(one, 2) is None


def test_an_id_belongs_to_its_recipient_and_sender():
    one = Ring(b"", 4)
    add(one, 1)
    assert one.get(SENDER, RECIPIENT, message_id(1)) is None
    assert one.get(RECIPIENT, RECIPIENT, message_id(1)) is None


def test_only_the_newest_ids_are_known():
    one = Ring(b"", 3)
    for n in range(5):
        add(one, n)
    assert [n for n in range(5) if get(one, n)] == [2, 3, 4]


def test_the_newest_of_two_hashes_counts():
    one = Ring(b"", 3)
    add(one, 1, value=7)
    add(one, 1, value=8)
    assert get(one, 1) == short_hash(8)


def test_a_ring_of_no_size_remembers_nothing():
    one = Ring(b"", 0)
    add(one, 1)
    assert get(one, 1) is None
    assert one.to_bytes() == b""


def test_a_key_that_only_seems_to_be_there_is_not_found(monkeypatch):
    monkeypatch.setattr(ring, "_key", lambda recipient, sender, message_id: message_id[-8:])
    key = (1 << 63 | 5).to_bytes(8, "big")
    one = Ring(b"", 9)
    # The key stands across two entries, first alone, then after a true entry.
    one.add(b"", b"", b"first" + b"." * 3 + key[:4].rjust(8, b"x"), key[4:] + b"yyyy")
    assert one.get(b"", b"", key) is None
    one.add(b"", b"", key, short_hash(5))
    one.add(b"", b"", key[:4].rjust(8, b"x"), key[4:] + b"zzzz")
    assert one.get(b"", b"", key) == short_hash(5)


def test_a_smaller_ring_forgets_and_a_larger_one_does_not_remember_again():
    one = Ring(b"", 4)
    for n in range(6):
        add(one, n)
    one.resize(8)
    assert [n for n in range(6) if get(one, n)] == [2, 3, 4, 5]
    one.resize(1)
    assert [n for n in range(6) if get(one, n)] == [5]
    one.resize(8)
    assert [n for n in range(6) if get(one, n)] == [5]


moves = st.one_of(
    st.tuples(st.just("add"), st.integers(1, 9)),
    st.tuples(st.just("resize"), st.integers(0, 5)),
    st.tuples(st.just("save"), st.just(0)),
)


@given(st.lists(moves, max_size=40))
def test_a_ring_is_the_list_of_the_newest_ids_wherever_it_is_saved(steps):
    size, model, one = 3, [], Ring(b"", 3)
    for move, n in steps:
        if move == "add":
            add(one, n)
            model = [*model, n]
        elif move == "resize":
            one.resize(n)
            size = n
        else:
            one = Ring(one.to_bytes(), size)
        model = model[len(model) - size :] if len(model) > size else model
        assert [n for n in range(1, 10) if get(one, n)] == sorted(set(model))
    assert len(one.to_bytes()) == 16 * len(model)
