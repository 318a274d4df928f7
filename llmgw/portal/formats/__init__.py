"""How the pages write dates, a language each, as Django looks for them."""
