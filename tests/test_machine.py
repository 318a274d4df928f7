"""This machine's settings: the file, the environment over it, and every problem at once."""

from __future__ import annotations

from pathlib import Path

from llmgw import machine


def test_defaults(tmp_path: Path) -> None:
    found = machine.read({}, cwd=tmp_path)
    assert isinstance(found, machine.Machine)
    assert found.home == tmp_path / ".llmgw"
    assert (found.host, found.port, found.link_port, found.metrics_port) == ("127.0.0.1", 8080, 7443, 9091)
    assert found.portal_url == "http://127.0.0.1:8080"


def test_the_environment_wins_over_the_file(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("port: 9000\nlink_names: [ctl.example.test]\n")
    found = machine.read({"LLMGW_HOME": str(tmp_path), "PORT": "9001", "LLMGW_ALLOWED_HOSTS": "a.test, b.test"})
    assert isinstance(found, machine.Machine)
    assert found.port == 9001
    assert found.link_names == ("ctl.example.test",)
    assert found.allowed_hosts == ("a.test", "b.test")


def test_every_problem_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("prot: 9000\nport: many\n")
    found = machine.read({"LLMGW_HOME": str(tmp_path), "LLMGW_STORE": "mysql://x"})
    assert isinstance(found, list)
    sentences = "\n".join(p.sentence for p in found)
    assert "has 'prot', which is none of" in sentences
    assert "port must be a TCP port, and is 'many'" in sentences
    assert "store must start with one of postgresql://" in sentences


def test_a_file_that_is_no_mapping(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("- a\n- b\n")
    found = machine.read({"LLMGW_HOME": str(tmp_path)})
    assert isinstance(found, list)
    assert "must hold names and values, not a list" in found[0].sentence


def test_sockets_fit_however_long_the_home_is(tmp_path: Path) -> None:
    deep = tmp_path / ("x" * 90)
    found = machine.read({"LLMGW_HOME": str(deep)})
    assert isinstance(found, machine.Machine)
    assert len(str(found.web_socket)) < 108


def test_the_collector_of_traces_is_a_block_of_its_own_and_the_file_goes_first(tmp_path: Path) -> None:
    said = {"LLMGW_HOME": str(tmp_path), "OTEL_EXPORTER_OTLP_ENDPOINT": "http://from-env.test:4318"}
    found = machine.read(said)
    assert isinstance(found, machine.Machine)
    assert (found.tracing_endpoint, found.tracing_sample_ratio) == ("http://from-env.test:4318", 1.0)
    (tmp_path / "config.yaml").write_text("tracing: {endpoint: 'http://otel.test:4318', sample_ratio: 0.1}\n")
    found = machine.read(said)
    assert isinstance(found, machine.Machine)
    assert (found.tracing_endpoint, found.tracing_sample_ratio) == ("http://otel.test:4318", 0.1)
    (tmp_path / "config.yaml").write_text("tracing: {endpoint: otel.test, sample_ratio: 7, level: 3}\n")
    wrong = machine.read({"LLMGW_HOME": str(tmp_path)})
    assert isinstance(wrong, list)
    assert [p.code for p in wrong] == ["unknown_machine_setting", "bad_machine_setting", "bad_machine_setting"]


def test_trusted_proxies_are_networks(tmp_path: Path) -> None:
    said = {"LLMGW_HOME": str(tmp_path), "LLMGW_TRUSTED_PROXIES": "10.0.0.0/24, 127.0.0.1"}
    found = machine.read(said)
    assert isinstance(found, machine.Machine)
    assert found.trusted_proxies == ("10.0.0.0/24", "127.0.0.1")
    wrong = machine.read({**said, "LLMGW_TRUSTED_PROXIES": "proxy.example.com"})
    assert isinstance(wrong, list)
    assert "not 'proxy.example.com'" in wrong[0].sentence
