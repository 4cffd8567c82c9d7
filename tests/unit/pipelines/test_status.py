import json
import urllib.error
import urllib.request

import pytest

from pipelines.status import Status, serve_status


@pytest.fixture
def served():
    status = Status()
    server = serve_status(status, 0)
    yield status, f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def test_the_driver_answers_for_itself(served):
    status, url = served
    with urllib.request.urlopen(f"{url}/status") as answer:
        assert json.load(answer) == {
            "ready": False,
            "state": "starting",
            "manifest": None,
            "reason": None,
        }
    status.set(ready=True, manifest=7)
    with urllib.request.urlopen(f"{url}/status") as answer:
        said = json.load(answer)
    assert (said["ready"], said["manifest"]) == (True, 7)


def test_there_is_nothing_else_to_ask(served):
    with pytest.raises(urllib.error.HTTPError, match="404") as caught:
        urllib.request.urlopen(f"{served[1]}/etc/passwd")
    caught.value.close()
