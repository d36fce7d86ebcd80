"""Defects of what is read: keys, bodies, configuration – and of what is shown."""

from defects.defect import Defect, Edit

IDENTITY = "framework/oncemq/message/identity.py"
READER = "framework/oncemq/message/reader.py"
DECODING = "framework/oncemq/message/decoding.py"
IDENTITIES = "tests/unit/message/test_identity.py"
BODIES = "tests/unit/message/test_decoding.py"

DEFECTS = (
    Defect(
        "nul-in-a-key",
        "A key with a NUL is refused: databases would cut or refuse it.",
        [Edit(IDENTITY, 'if "\\0" in text:', "if False:")],
        [f"{IDENTITIES}::test_what_has_no_one_spelling_is_refused"],
    ),
    Defect(
        "over-long-key",
        "A key longer than the ledger's column is refused.",
        [
            Edit(
                IDENTITY,
                '    if size > max_bytes:\n        raise InvalidKey(f"{source} has {size} bytes, the most is {max_bytes}: use a shorter',
                '    if False:\n        raise InvalidKey(f"{source} has {size} bytes, the most is {max_bytes}: use a shorter',
            )
        ],
        [f"{IDENTITIES}::test_what_has_no_one_spelling_is_refused"],
    ),
    Defect(
        "boolean-key",
        "A boolean is no key: True and 1 would be one entity.",
        [
            Edit(
                IDENTITY,
                "    elif type(value) is int:\n        text = _integer",
                "    elif isinstance(value, int):\n        text = _integer",
            )
        ],
        [f"{IDENTITIES}::test_what_has_no_one_spelling_is_refused"],
    ),
    Defect(
        "key-invented",
        "A missing key is refused, never invented from the broker's message id.",
        [
            Edit(
                READER,
                "    return lambda message, body: canonical_key(find(message, body), source)\n",
                "    return lambda message, body: canonical_key(find(message, body) or message.message_id, source)\n",
            )
        ],
        [
            "tests/unit/message/test_missing_key.py::test_a_missing_key_is_not_replaced_by_the_brokers_message_id"
        ],
    ),
    Defect(
        "parts-run-together",
        "Different parts never make the same identity.",
        [
            Edit(
                IDENTITY,
                '    return text.replace(":", "%3A") if ":" in text else text\n',
                "    return text\n",
            )
        ],
        [
            "tests/unit/message/test_reader.py::test_a_colon_in_a_key_cannot_imitate_a_version",
            f"{IDENTITIES}::test_parts_can_be_read_back",
        ],
    ),
    Defect(
        "version-not-in-identity",
        "Where a version is declared, it is part of the identity.",
        [Edit(READER, '(("key", "version") if has_version else ("key",))', '("key",)')],
        ["tests/unit/message/test_reader.py::test_the_identity_is_key_and_version_where_one_is_declared"],
    ),
    Defect(
        "fields-named-twice",
        "An object that names a field twice has no one meaning and is refused.",
        [Edit(DECODING, "    if len(fields) != len(pairs):\n", "    if False:\n")],
        [f"{BODIES}::test_what_has_no_one_meaning_is_undecodable"],
    ),
    Defect(
        "deep-json-parsed",
        "Deep nesting is refused before it is parsed.",
        [Edit(DECODING, "            self._refuse_depth(body)\n", "            pass\n")],
        [
            f"{BODIES}::test_what_has_no_one_meaning_is_undecodable",
            f"{BODIES}::test_depth_is_counted_not_brackets",
            f"{BODIES}::test_a_hundred_levels_are_allowed",
        ],
    ),
    Defect(
        "bomb-unpacked",
        "A body is never unpacked beyond its limit.",
        [
            Edit(
                "framework/oncemq/message/compression.py",
                "inflater.decompress(body, largest + 1)",
                "inflater.decompress(body)",
            )
        ],
        [f"{BODIES}::test_a_bomb_is_never_unpacked"],
    ),
    Defect(
        "forged-attempt-believed",
        "A forged attempt header never becomes nonsense, such as an attempt below one.",
        [Edit("framework/oncemq/message/headers.py", "return max(1, int(text)) if", "return int(text) if")],
        ["tests/unit/message/test_headers.py::test_an_attempt_is_read_or_one"],
    ),
    Defect(
        "yaml-keys-twice",
        "A key that stands twice in the configuration is refused.",
        [
            Edit(
                "framework/oncemq/config/source/yaml_text.py",
                "        if isinstance(fields, Fields) and name in fields.keys:\n",
                "        if False:\n",
            )
        ],
        [
            "tests/unit/config/source/test_yaml_text.py::test_what_is_no_plain_mapping_is_refused_with_its_place"
        ],
    ),
    Defect(
        "yaml-aliases",
        "Aliases are refused: a few lines of them expand to millions of values.",
        [
            Edit(
                "framework/oncemq/config/source/yaml_text.py",
                '        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:\n',
                "        if False:\n",
            )
        ],
        ["tests/unit/config/source/test_yaml_text.py::test_an_alias_bomb_is_refused"],
    ),
    Defect(
        "urls-shown-whole",
        "A URL shows itself without its password.",
        [
            Edit(
                "framework/oncemq/config/source/secrets.py",
                "    def __str__(self) -> str:\n        return mask_url(self._text)\n",
                "    def __str__(self) -> str:\n        return self._text\n",
            )
        ],
        ["tests/unit/config/source/test_secrets.py::test_urls_are_shown_without_their_password"],
    ),
    Defect(
        "configuration-shown",
        "What is loaded can be printed and logged without its values.",
        [
            Edit(
                "framework/oncemq/config/model/section.py",
                "        return f\"{type(self).__name__}({', '.join(sorted(self.model_fields_set))})\"\n",
                "        return super().__repr__()\n",
            )
        ],
        ["tests/unit/config/source/test_secrets.py::test_no_repr_shows_a_secret"],
    ),
    Defect(
        "passwords-logged",
        "A password is masked in any text that is logged.",
        [
            Edit(
                "framework/oncemq/common/redaction.py",
                '    _Pattern(("://",), _USERINFO, rf"\\1{MASK}@"),\n',
                "",
            )
        ],
        ["tests/unit/common/test_redaction.py::test_credentials_are_masked_where_they_usually_stand"],
    ),
    Defect(
        "log-lines-forged",
        "A newline in a message cannot forge a line of the log.",
        [
            Edit(
                "framework/oncemq/common/redaction.py",
                "        character if character.isprintable() else character",
                "        character if True else character",
            )
        ],
        ["tests/unit/observe/test_logs.py::test_a_newline_in_a_message_cannot_forge_a_line"],
    ),
)
