"""What each member says about rows it never saw."""
