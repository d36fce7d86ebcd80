"""Fingerprints of the message that took each key's present place, to compare the content of copies."""

from sqlalchemy import Column

from oncemq.ledger.sql.column_types import ExactText, Moment, Token
from oncemq.ledger.sql.tables import CONSUMER_SIZE, KEY_SIZE, ledger_table

PRINT_SIZE = 64

TABLE = ledger_table(
    "place_prints",
    Column("consumer", ExactText(CONSUMER_SIZE), primary_key=True),
    Column("key", ExactText(KEY_SIZE), primary_key=True),
    Column("place", ExactText(CONSUMER_SIZE), nullable=False),  # a state, a number or a version
    Column("fingerprint", ExactText(PRINT_SIZE), nullable=False),
    Column("taken_at", Moment, nullable=False),
    Column("owner", Token),  # who inserted it, where the database cannot say which rows were new
)
