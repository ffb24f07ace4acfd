"""Between plan and switches: epochs, rules, the REST schema, and the seam to Ryu or os-ken."""
