"""`qccl dash` in a browser: what its page shows of planted faults, and that foreign text stays text."""

import contextlib
import http.client
import json
import os
import signal
import subprocess
from urllib.parse import urlsplit

import planted
import pytest
from chromium import browser, needs_chromium
from planted import Log, gauge, operation, steps
from program import DEADLINE, PROGRAM, environment

RANKS = 4
MARKUP = '<img src=x onerror="planted=1"><script>planted=1</script>'


@contextlib.contextmanager
def dash(*logs: object, listen: str = "127.0.0.1:0"):
    """A running `qccl dash`; its value is the URL that it prints. It must end cleanly."""
    command = [str(PROGRAM), "dash", "--listen", listen, *map(str, logs)]
    process = subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, text=True)
    try:
        yield process.stdout.readline().strip()
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=DEADLINE) == 0
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        process.stdout.close()


def get(url: str, path: str = "/", **headers: str) -> tuple[int, dict[str, str], str]:
    """Status, headers and text of a document."""
    connection = http.client.HTTPConnection(urlsplit(url).hostname, urlsplit(url).port, timeout=DEADLINE)
    with contextlib.closing(connection):
        connection.request("GET", path, headers=headers)
        reply = connection.getresponse()
        return reply.status, {name.lower(): value for name, value in reply.getheaders()}, reply.read().decode()


@pytest.fixture
def logs(tmp_path) -> list[Log]:
    return [Log(tmp_path, rank) for rank in range(RANKS)]


@pytest.fixture(scope="module")
def page():
    """A browser for all tests of this file."""
    with browser() as page:
        yield page


@contextlib.contextmanager
def opened(page, url: str):
    """The page with data; at the end it must have complained of nothing."""
    page.errors.clear()
    page.open(url)
    try:
        page.wait_for(
            f"location.href.startsWith({json.dumps(url)}) && job !== null && job.ranks.length > 0 && drawn !== null"
        )
        yield page
        assert page.errors == []
    finally:
        page.open("about:blank")


# ---- What the page shows


@needs_chromium
def test_a_straggler_is_named_with_its_share_and_its_delay(page, logs, tmp_path):
    for log in logs:
        steps(log, range(1, 101), late_rank=2)
    with dash(tmp_path / "log_") as url, opened(page, url):
        finding = page.wait_for("at('findings').innerText.includes('comes last') && at('findings').innerText")
        assert "Rank 2 comes last: in 100 % of the latest 100 operations, by 3.87 ms" in finding
        assert page.text("#late tr:first-child").split() == ["2", "100", "387", "ms"]


@needs_chromium
def test_a_rank_that_is_late_for_one_operation_of_each_step_is_named(page, logs, tmp_path):
    for log in logs:
        for number in range(1, 101):
            steps(log, range(number, number + 1), late_rank=1 if number % 4 == 0 else None)
    with dash(tmp_path / "log_") as url, opened(page, url):
        page.wait_for("at('findings').innerText.includes('Rank 1 comes last: in 25 % of')")


@needs_chromium
def test_ranks_that_come_last_in_turn_are_no_finding(page, logs, tmp_path):
    for log in logs:
        for number in range(1, 101):
            steps(log, range(number, number + 1), late_rank=number % RANKS)
    with dash(tmp_path / "log_") as url, opened(page, url):
        page.wait_for("at('findings').innerText.includes('Nothing stands out')")


@needs_chromium
def test_a_rank_without_a_log_and_one_that_falls_silent_are_named(page, logs, tmp_path):
    for log in logs:
        steps(log, range(1, 401 if log.rank != 1 else 41))
    logs[3].path.write_text("")  # as a killed rank leaves it
    with dash(tmp_path / "log_") as url, opened(page, url):
        page.wait_for("at('findings').innerText.includes('Rank 1 is silent: its last operation, gradients #40')")
        assert "Nothing of rank 3 of 4" in page.text("#findings")
        assert "silent 3.60 s" in page.text("#ranks")


@needs_chromium
def test_a_failure_is_a_finding_and_an_event_with_the_ranks_that_saw_it(page, logs, tmp_path):
    for log in logs[:3]:
        steps(log, range(1, 11))
        log.add(
            operation(posted=200, started=200, ended=900, sequence=11, error="rank 3 was lost: its connection ended")
        )
    with dash(tmp_path / "log_") as url, opened(page, url):
        page.wait_for("at('findings').innerText.includes('Rank 0 failed in gradients #11: rank 3 was lost')")
        assert "(and 2 more)" in page.text("#findings")
        page.wait_for("at('events').innerText.includes('(ranks 0, 1, 2)')")


@needs_chromium
def test_a_residual_that_piles_up_is_named_and_others_are_not(page, logs, tmp_path):
    steps(logs[0], range(1, 3))
    for step in range(60):
        logs[0].add(gauge(name="head.weight", step=step, residual=0.1 * step))
        logs[0].add(gauge(name="body.weight", step=step, residual=0.5))
    with dash(tmp_path / "log_") as url, opened(page, url):
        page.wait_for("at('findings').innerText.includes('What is not sent of head.weight piles up')")
        assert "5.9 times its gradient" in page.text("#findings") and "body.weight" not in page.text("#findings")
        assert page.text("#gauges tr:first-child").startswith("head.weight")
        assert page.run("document.querySelectorAll('#gauges .bad-text').length") == 1
        page.wait_for("at('events').innerText.includes('in step 21')")  # once, when it began
        assert page.run("document.querySelectorAll('#events li').length") == 1


@needs_chromium
def test_shrinking_and_a_change_of_the_codec_are_events_once(page, logs, tmp_path):
    for log in logs:
        steps(log, range(1, 11))
    for log in logs[:3]:
        steps(log, range(11, 21), group="world/shrunk", group_size=3, group_id="00000000000000bb", compression="none")
    with dash(tmp_path / "log_") as url, opened(page, url):
        page.wait_for("at('events').innerText.includes('group world: 3 ranks, before 4')")
        assert f"none, before {planted.MINMAX}" in page.text("#events")
        assert page.run("document.querySelectorAll('#events li').length") == 2


@needs_chromium
def test_the_page_follows_logs_that_grow_and_that_come_later(page, logs, tmp_path):
    steps(logs[0], range(1, 3))
    for log in logs[1:]:
        log.path.unlink()
    with dash(tmp_path / "log_") as url, opened(page, url):
        page.wait_for("at('operations').innerText.includes('gradients') && job.operations[0].calls === 2")
        steps(logs[0], range(3, 11))
        page.wait_for("job.operations[0].calls === 10")
        steps(Log(tmp_path, 1), range(1, 11))
        page.wait_for("job.operations[0].calls === 20 && job.ranks.length === 2")
        steps(Log(tmp_path, 0), range(1, 4))  # the file begins anew, with the records of another job
        page.wait_for("job.operations[0].calls === 13")


@needs_chromium
def test_markup_in_names_stays_text(page, tmp_path):
    log = Log(tmp_path, 0, host=MARKUP, world=1)
    steps(log, range(1, 5), name=MARKUP, group=MARKUP)
    log.add(operation(posted=100, started=100, ended=101, sequence=5, name=MARKUP, error=MARKUP))
    log.add(gauge(name=MARKUP, residual=9))
    with dash(log.path) as url, opened(page, url):
        for place in ("findings", "operations", "ranks", "gauges", "events", "kinds"):
            page.wait_for(f"at('{place}').textContent.includes({json.dumps(MARKUP)})")
        page.run("showTip(GUTTER + 200, 5)")
        assert MARKUP in page.run("at('tip').textContent")
        assert page.run("document.querySelectorAll('img').length") == 0
        assert page.run("typeof planted") == "undefined"


@needs_chromium
def test_the_policy_refuses_markup_and_scripts_that_a_bug_might_add(page, logs, tmp_path):
    steps(logs[0], range(1, 3))
    with dash(logs[0].path) as url, opened(page, url):
        assert (
            page.run("(() => { try { document.body.innerHTML = '<b>x</b>'; } catch (e) { return e.name; } })()")
            == "TypeError"
        )
        script = "const s = document.createElement('script'); try { s.textContent = 'planted = 1'; } catch {}"
        page.run(f"(() => {{ {script} document.body.append(s); }})()")
        assert page.run("typeof planted") == "undefined"
        page.errors.clear()  # the refusals


@needs_chromium
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast_and_a_phone_needs_no_sideways_scrolling(page, logs, tmp_path, scheme):
    for log in logs:
        steps(log, range(1, 41), late_rank=2, name="a_name_without_any_blanks_that_is_longer_than_a_phone_is_wide_" * 2)
    logs[0].add(gauge(name="module." * 20, residual=9))
    contrast = """(() => {
      const light = c => c.match(/[\\d.]+/g).slice(0, 3).map(v => v / 255)
        .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
        .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
      const ground = node => {
        for (; node; node = node.parentElement) {
          const colour = getComputedStyle(node).backgroundColor;
          if (!/, 0\\)$/.test(colour)) return colour;
        }
      };
      const found = [];
      for (const node of document.querySelectorAll("body *")) {
        if (![...node.childNodes].some(each => each.nodeType === 3 && each.data.trim()) || !node.offsetWidth) continue;
        const [a, b] = [light(getComputedStyle(node).color), light(ground(node))];
        const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        if (ratio < 4.5) found.push(`${node.tagName} ${node.id} ${ratio.toFixed(2)} ${node.textContent.slice(0, 30)}`);
      }
      return found;
    })()"""
    with dash(tmp_path / "log_") as url:
        page.prefer(scheme)
        page.resize(390, 844, is_phone=True)
        with opened(page, url):
            page.wait_for("gauges.parameters.length === 1 && at('findings').children.length === 2")
            assert page.run("document.documentElement.scrollWidth <= innerWidth")
            assert page.run(contrast) == []
            named = "[...document.querySelectorAll('button, canvas, [role=region]')]"
            assert (
                page.run(f"{named}.filter(each => !each.ariaLabel && !each.innerText.trim() && !each.hidden).length")
                == 0
            )
        page.resize(1280, 900)


@needs_chromium
def test_keys_and_buttons_move_the_view_down_to_single_operations(page, logs, tmp_path):
    for log in logs:
        steps(log, range(1, 2001))
    with dash(tmp_path / "log_") as url, opened(page, url):
        page.wait_for("drawn.bin > 0 && drawn.lanes.length === 4")  # 8000 operations are drawn as bins
        busy = "drawn.lanes[0].bins.replace(/(.)./g, '$1').split('').filter(each => each !== '-').length"
        assert page.run(busy) > 100
        for _ in range(6):
            page.run("at('in').click()")
        page.wait_for("drawn.lanes[0].strokes?.length > 3")
        before = page.run("view.from")
        page.run("canvas.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowRight'}))")
        assert page.run("view.from") > before
        page.run("canvas.dispatchEvent(new KeyboardEvent('keydown', {key: 'Home'}))")
        assert page.run("view.from === 0 && view.to === job.end")


# ---- What the server allows


def test_other_hosts_need_the_token(logs):
    steps(logs[0], range(1, 3))
    with dash(logs[0].path, listen="0.0.0.0:0") as url:
        assert "?token=" in url
        token = url.partition("?token=")[2]
        local = url.replace("0.0.0.0", "127.0.0.1")
        for path in ("/", "/events", "/timeline?from=0&to=1", "/?token=" + "0" * len(token), "/metrics"):
            assert get(local, path)[0] == 401
        assert get(local, "/", Authorization="Bearer " + token[:-1])[0] == 401
        assert get(local, "/timeline?from=0&to=1", Authorization="Bearer " + token)[0] == 200
        status, headers, _ = get(local, "/?token=" + token)
        assert status == 303 and headers["location"] == "/"
        assert "HttpOnly" in headers["set-cookie"] and "SameSite=Strict" in headers["set-cookie"]
        assert get(local, "/", Cookie="a=b; " + headers["set-cookie"].partition(";")[0])[0] == 200
    with dash(logs[0].path, listen="0.0.0.0:0") as url:
        assert token not in url


def test_on_loopback_a_name_of_another_site_is_refused(logs):
    with dash(logs[0].path) as url:
        assert get(url)[0] == 200
        assert get(url, "/", Host="localhost:1")[0] == 200
        assert get(url, "/", Host="127.0.0.1.evil.example:8265")[0] == 403


def test_documents_forbid_what_is_not_needed(logs):
    with dash(logs[0].path) as url:
        _, headers, text = get(url)
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'nonce-") and "unsafe" not in policy
        assert "NONCE" not in text and get(url)[1]["content-security-policy"] != policy
        assert not any(word in text for word in ("http://", "https://", "innerHTML", "@import"))
        assert headers["x-content-type-options"] == "nosniff" and "access-control-allow-origin" not in headers


@pytest.mark.parametrize("query", ["", "?from=0", "?from=x&to=1", "?from=2&to=1", "?from=nan&to=1", "?from=0&to=1e300"])
def test_a_window_that_is_none_is_refused(logs, query):
    with dash(logs[0].path) as url:
        assert get(url, "/timeline" + query)[0] == 400
        assert get(url, "/../etc/passwd")[0] == 404


def test_what_is_sent_is_bounded_whatever_is_asked_for(tmp_path):
    for rank in range(200):
        Log(tmp_path, rank, world=200).add(
            *(operation(posted=n, started=n, ended=n + 0.5, sequence=n, group_size=200) for n in range(1, 31))
        )
    with dash(tmp_path / "log_") as url:
        for query in ("from=0&to=30&bins=1000000000&lanes=1000000", "from=-1e11&to=1e11&bins=-5&lane=-3"):
            status, _, text = get(url, "/timeline?" + query)
            assert status == 200 and len(text) < 1_000_000
            assert len(json.loads(text)["lanes"]) <= 128


def test_a_port_in_use_and_a_wrong_address_are_told(logs):
    with dash(logs[0].path) as url:
        command = [str(PROGRAM), "dash", "--listen", f"127.0.0.1:{urlsplit(url).port}", str(logs[0].path)]
        done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=DEADLINE)
        assert done.returncode == 1 and "in use" in done.stderr
    for address in ("8265", "127.0.0.1:", "127.0.0.1:99999", "127.0.0.1:x"):
        command = [str(PROGRAM), "dash", "--listen", address, str(logs[0].path)]
        done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=DEADLINE)
        assert done.returncode == 2 and "HOST:PORT" in done.stderr


def test_a_file_that_is_no_log_is_left_out_with_a_word(logs, tmp_path):
    steps(logs[0], range(1, 3))
    (tmp_path / "log_7.json").write_text('{"a": 1}\n')
    command = [str(PROGRAM), "dash", "--listen", "127.0.0.1:0", str(tmp_path / "log_")]
    process = subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert "log_7.json" in process.stderr.readline()
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(timeout=DEADLINE) == 0
    finally:
        process.kill()
        process.communicate()
