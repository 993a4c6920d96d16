"""Wants a framework that is not installed."""

import frameworks_to_come
