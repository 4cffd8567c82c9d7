"""Only one statement that reads gets through to the engine."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farpost.statement import QUERY_CHARS_MAX, read_only
from schemas.errors import BadQuery


@pytest.mark.parametrize(
    "text",
    [
        "select 1",
        "SELECT * FROM history",
        "with m as (select 1 as n) select n from m",
        "select 'insert; drop table x -- not a comment' as text",
        "select 'it''s' as text",
        'select 1 as "delete"',
        "select `offset` from history",
        "select a-b, a/b, a % b, a || 'x', a::int, arr[1], {x: 1} from t where a <> -1.5e3",
        "select *\nfrom history\n\twhere kind = 'stored'",
    ],
)
def test_a_query_passes_as_it_is(text):
    assert read_only(text) == text


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("select 1;", "select 1"),
        ("  select 1 ; ;\n", "select 1"),
        ("-- why\nselect 1 -- how\n", "select 1"),
        ("/* a */select/**/1/* b\n */", "select 1"),
        ("select Offset from t limit 2 offset 3", 'select "offset" from t limit 2 offset 3'),
        ("select /* a\n */ 1", "select  \n 1"),
    ],
)
def test_comments_and_final_semicolons_go(text, kept):
    assert read_only(text) == kept


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        ";",
        "-- select 1",
        "copy (select 1) to 'x.csv'",
        "create external table t stored as csv location '/etc/passwd'",
        "/* select */ copy history to 'x'",
        "-- select\ncreate view v as select 1",
        "insert into history select * from history",
        "delete from history",
        "update history set kind = 'x'",
        "drop table history",
        "set datafusion.catalog.information_schema = true",
        "explain select 1",
        "show tables",
        "values (1)",
        "(select 1)",
        "'select' 1",
        '"select" 1',
        "selectx",
        "select * into copy_of from history",
        "with x as (select 1) insert into history select * from x",
        "with x as (delete from history returning *) select * from x",
        "with x as (select 1) update history set kind = 'x'",
        "select 1; drop table history",
        "select 1;select 2",
        "select 1; /* c */ copy history to 'x'",
        "/* /* */ select 1 */ copy history to 'x'",
        "select 1 /* open",
        "select 'open",
        'select "open',
        r"select E'\'' || ' ; copy t to x'",
        "select U&'\\0041'",
        "select &'x'",
        "select $$x$$",
        "select 1 \\ 2",
        "select #",
    ],
)
def test_everything_else_is_refused_with_a_sentence(text):
    with pytest.raises(BadQuery, match=r"\w+ \w+ \w+"):
        read_only(text)


def test_the_place_of_what_cannot_be_read_is_named():
    with pytest.raises(BadQuery, match="line 2, column 8: a quote that is not closed"):
        read_only("select\n  1, a 'x")


def test_a_query_has_a_limit():
    with pytest.raises(BadQuery, match="100,001 characters"):
        read_only("select " + "1" * (QUERY_CHARS_MAX - 6))


@given(st.text(alphabet="selctwihnr1 '\"`;-/*\n\\$Eu&()", max_size=60))
def test_any_text_is_passed_or_refused_and_what_passes_has_one_statement(text):
    try:
        kept = read_only(text)
    except BadQuery:
        return
    assert kept.lower().startswith(("select", "with"))
    assert read_only(kept) == kept
