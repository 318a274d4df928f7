"""What the ledger costs a request, and whether its limits hold in a storm."""
