"""QCCL_DASHBOARD: the page that rank 0 serves while its job runs."""

import contextlib
import json
import os
import re
import signal

import pytest
from chromium import browser, needs_chromium
from program import Job
from test_dash import get, opened
from test_ps import busy

RANKS = 3


@contextlib.contextmanager
def served(code: str, address: str = "127.0.0.1:0", **variables: str):
    """A running job and the URL that its rank 0 writes."""
    with Job(RANKS, code, QCCL_DASHBOARD=address, **variables) as job:
        line = job.process.stderr.readline()
        found = re.search(r"the page of this job is (\S+)", line)
        assert found, line
        yield job, found.group(1)


def test_metrics_have_the_counters_of_all_ranks():
    with served(busy(1000)) as (_, url):
        text = ""
        while not all(f'rank="{rank}"' in text for rank in range(RANKS)):  # until ranks have answered
            status, headers, text = get(url, "/metrics")
            assert status == 200 and headers["content-type"].startswith("text/plain")


def test_a_page_for_other_hosts_needs_the_token_for_metrics_too():
    with served(busy(1000), "0.0.0.0:0") as (_, url):
        local, _, token = url.replace("0.0.0.0", "127.0.0.1").partition("?token=")
        assert get(local, "/metrics")[0] == 401
        assert get(local, "/metrics", Authorization="Bearer " + token)[0] == 200


def test_a_port_in_use_is_told_and_the_job_goes_on():
    with served(busy(1000)) as (_, url):
        address = url.removeprefix("http://").rstrip("/")
        with Job(1, "print('begins')\n" + busy(1000), QCCL_DASHBOARD=address) as second:
            assert "in use" in second.process.stderr.readline()
            assert second.read_lines(1) == ["begins"]


@pytest.mark.parametrize("address", ["8265", "127.0.0.1:x"])
def test_a_wrong_address_is_refused_at_the_start(address):
    with Job(1, busy(1000), QCCL_DASHBOARD=address) as job:
        code, _, err = job.end()
        assert code != 0 and "QCCL_DASHBOARD" in err and "HOST:PORT" in err


@pytest.fixture(scope="module")
def page():
    with browser() as page:
        yield page


@needs_chromium
def test_the_page_shows_all_ranks_and_names_the_one_that_holds_the_others_up(page):
    with served(busy(1000)) as (job, url), opened(page, url):
        page.wait_for(f"job.ranks.length === {RANKS} && job.ranks.every(each => each.state === 'ok')")
        page.wait_for("job.operations.some(each => each.name === 'all_reduce of world' && each.calls > 100)")
        page.wait_for(f"drawn.lanes.length === {RANKS} && drawn.lanes.every(each => /[^-]/.test(each.bins ?? ''))")
        os.kill(job.ranks()[1], signal.SIGSTOP)
        page.wait_for("at('findings').innerText.startsWith('Ranks 0, 2 wait for rank 1, which does not answer')")
        page.wait_for("at('ranks').rows[1].innerText.includes('silent')")
        os.kill(job.ranks()[1], signal.SIGCONT)
        page.wait_for("!/wait for rank 1/.test(at('findings').innerText)")


@needs_chromium
def test_the_records_of_rank_0_are_drawn_one_by_one_while_its_log_is_on(page, tmp_path):
    with served(busy(1000), QCCL_LOG_FILE=str(tmp_path / "log_")) as (_, url), opened(page, url):
        page.wait_for("job.operations.some(each => each.p50_ms > 0) && job.ranks[0].operations > 100")
        page.run("look(job.end - 1010, job.end - 1000)")
        assert json.dumps(page.wait_for(f"job.ranks.length === {RANKS} && drawn.to - drawn.from < 100 && drawn.lanes"))
