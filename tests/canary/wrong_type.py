"""A deliberate type error: the type check must find this file in every package that it is laid into."""

NUMBER: int = "not a number"
