"""How the queries of pages, commands and the ledger grow with the rows that are kept."""
