"""Personal data (PII) removal: e-mail addresses, phone, card and identity numbers, secrets."""
