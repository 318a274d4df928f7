"""What the mirror holds, as rows: none yet; weights come from paths, addresses, Hugging Face and the wheel."""
