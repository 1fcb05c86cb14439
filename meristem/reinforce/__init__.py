"""Models that write better because something tells them how well they wrote."""
