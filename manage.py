#!/usr/bin/env python
from llmgw.main import main

if __name__ == "__main__":
    main()
