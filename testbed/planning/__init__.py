"""From a spec to what will be made: devices, addresses, links, and what each role is told."""
