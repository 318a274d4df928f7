"""Django, as ASGI: the portal, the admin API, everything that is not the inference path.

`application` alone serves everything in one process, by path: the edge in front of Django.
"""

from __future__ import annotations

import os

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "llmgw.settings")

django = get_asgi_application()
application = django
