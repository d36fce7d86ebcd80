"""How requests prove who sends them: RocketMQ's access key and a signature over everything that is said."""

import base64
import hmac
from collections.abc import Mapping


def signed(fields: Mapping[str, str], body: bytes, access_key: str, secret: str) -> dict[str, str]:
    """Return the fields with the account and the signature added.

    The signature is over the fields' values in the order of their names, then the body.
    """
    result = {**fields, "AccessKey": access_key}
    text = "".join([result[name] for name in sorted(result)]).encode() + body
    # The protocol's choice; it proves knowledge of a secret and hides nothing.
    digest = hmac.digest(secret.encode(), text, "sha1")
    result["Signature"] = base64.b64encode(digest).decode()
    return result
