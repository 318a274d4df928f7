"""The queue before the engines: what it costs a request, and what it does for a quiet tenant beside a loud one."""
