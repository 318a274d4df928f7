"""How fast the gateway is: the edge beside a direct connection, in one interleaved run (`python -m bench --help`)."""
