"""What `init` says where it cannot write."""

from pathlib import Path

from support.command_line import run_program


def test_a_folder_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    """No traceback: which folder, why, and what to do."""
    (tmp_path / "file").touch()
    refused = run_program("init", str(tmp_path / "file" / "shop"))
    assert refused.exit_code != 0
    assert f"cannot write into {tmp_path}/file/shop" in refused.stderr
    assert "Traceback" not in refused.stderr
