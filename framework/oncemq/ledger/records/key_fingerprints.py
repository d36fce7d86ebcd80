"""Fingerprints of the message that produced each key's current state, number or version, to compare copies with."""

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
    Column("owner", Token),  # the inserting owner, if the database cannot return which rows were new
)
