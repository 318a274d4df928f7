"""The walk of a request as machine code: what is compiled, how it is built, and how an edge takes it up."""
