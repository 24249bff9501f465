"""From a spec to a plan: devices, addresses, links, and the settings of each role."""
