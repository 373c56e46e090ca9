"""A second command on a file: it talks to whichever runtime holds it, with that one's token."""

import asyncio
from pathlib import Path

import pytest

from tests.helpers.embedded import DEADLINE_S, MODEL
from threadlog.adapters.sqlite.lock import token_path
from threadlog.bootstrap.embedded import RunOptions, Runtime
from threadlog.bootstrap.link import FileLink
from threadlog.commands.requests import NewMessage, NewThread, ThreadSettings
from threadlog.errors import RefusedError
from threadlog.events.content import TextPart
from threadlog.settings import Settings

NEW = NewThread(ThreadSettings(model=MODEL), message=NewMessage((TextPart(text="go"),)))


def silent(_: str) -> None:
    return


@pytest.fixture
def settings(short_dir: Path) -> Settings:
    return Settings(data_dir=short_dir / "data", sandbox="off")


@pytest.fixture
def options(short_dir: Path) -> RunOptions:
    script = short_dir / "script.json"
    script.write_text('[{"text":"a"},{"text":"b"},{"text":"c"}]')
    return RunOptions("user:ann", script)


async def test_it_follows_the_file_to_the_next_runtime(
    settings: Settings, options: RunOptions
) -> None:
    async with asyncio.timeout(DEADLINE_S):
        first = await Runtime.start(settings, options, silent)
        token = token_path(settings.log_file()).read_text()
        link = FileLink(settings, options, silent)
        await link.open()
        assert not link.holds_lock
        one = await link.commands.create_thread(NEW, key="1")
        assert (await first.reader().thread(one.thread_id)).head >= one.seq
        await first.stop()
        second = await Runtime.start(settings, options, silent)
        assert token_path(settings.log_file()).read_text() != token
        # The connection is gone, and the old token opens nothing.
        two = await link.commands.create_thread(NEW, key="2")
        assert (await second.reader().thread(two.thread_id)).head >= two.seq
        again = await link.commands.create_thread(NEW, key="1")
        assert (again.event_id, again.seq) == (one.event_id, one.seq)
        await link.close(in_order=True)
        await second.stop()


async def test_it_asks_for_no_other_model_than_its_own(
    settings: Settings, options: RunOptions, short_dir: Path
) -> None:
    other = short_dir / "other.json"
    other.write_text('[{"text":"z"}]')
    async with asyncio.timeout(DEADLINE_S):
        runtime = await Runtime.start(settings, options, silent)
        for script, fits in ((options.script, True), (other, False)):
            link = FileLink(settings, RunOptions("user:ann", script), silent)
            await link.open()
            if fits:
                await link.check_model("scripted")
            else:
                with pytest.raises(RefusedError, match="another scripted model"):
                    await link.check_model("scripted")
            await link.close(in_order=True)
        await runtime.stop()


async def test_it_waits_for_a_token_that_is_not_there_yet(
    settings: Settings, options: RunOptions
) -> None:
    async with asyncio.timeout(DEADLINE_S):
        runtime = await Runtime.start(settings, options, silent)
        file = token_path(settings.log_file())
        token = file.read_text()
        file.write_text("of a runtime before\n")
        link = FileLink(settings, options, silent)
        sending = asyncio.create_task(link.commands.create_thread(NEW, key="1"))
        while link._remote is None:
            await asyncio.sleep(0.01)
        file.write_text(token)
        await sending
        await link.close(in_order=True)
        await runtime.stop()
