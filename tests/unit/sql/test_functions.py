"""Entries of the table of functions, and the expressions that are made of their forms."""

from __future__ import annotations

from sqlglot import exp

from pyspark_rocketmq.sql.flinksql.functions.declared import Example, Function, function
from pyspark_rocketmq.sql.flinksql.grammar import parse_expression
from pyspark_rocketmq.sql.flinksql.operators.forms import called


def test_an_entry_has_forms_by_the_number_of_arguments():
    found = function("differs", ("F(1)", 2), of1="f(_1)", of2="f(_1, _2)", distinct1="g(_1)")
    forms = {1: "f(_1)", 2: "f(_1, _2)"}
    assert found == Function(forms, "differs", (Example("F(1)", 2),), any_number=False, distinct={1: "g(_1)"})
    assert function("differs", any_number=True, of0="f(_all)") == Function(
        {0: "f(_all)"}, "differs", (), any_number=True
    )


def test_only_a_call_is_called():
    others = (exp.column("count"), exp.Literal.string("count"))
    found = [called(each) for each in (parse_expression("count(a)"), *others, None)]
    assert found == ["COUNT", "", "", ""]
