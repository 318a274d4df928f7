"""The pages, a module a noun. Each loads by selectors, and changes by the apps' actions."""
