"""The hot loop against the machine."""

import pytest

from benchmarks import command, limits


def test_fractions_are_of_the_raw_cipher() -> None:
    answer = limits.measure(repeats=1, scale=1 / 64)
    raw = answer["aes_256_ctr"]["bytes_per_second"]
    assert raw == max(answer["aes_256_ctr"]["by_buffer_size"].values())
    assert set(answer["mask_expansion"]) == {str(bits) for bits in limits.WIDTHS}
    for measured in answer["mask_expansion"].values():
        assert measured["fraction_of_aes"] == pytest.approx(measured["bytes_per_second"] / raw)
        assert measured["bytes_per_second"] > 1e6


def test_no_turn_at_all_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        command.run(limits.main, ["--repeats", "0"])
    assert end.value.code == 2
    assert capsys.readouterr().err == "sparsesecagg: --repeats must be at least 1, got 0.\n"
