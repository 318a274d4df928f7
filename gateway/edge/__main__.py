"""`python -m gateway.edge`: one edge process, in its compiled form where there is one."""

from __future__ import annotations

import logging

import uvloop

from gateway.compiling import loading
from llmgw import machine


def main() -> None:
    this = machine.require()
    level = logging.DEBUG if this.debug else logging.INFO
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    form = loading.use(this.compiled_dir)
    logging.getLogger(__name__).info("the inference path is %s", form.sentence)
    from gateway.edge.serving import serve  # its modules may come compiled from here on

    uvloop.run(serve(this, form.compiled))


if __name__ == "__main__":
    main()
