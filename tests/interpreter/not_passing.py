"""Why some of CPython's own test methods do not pass under `interpret`: reason -> methods, of all versions together."""

from __future__ import annotations

_GROUPS = {
    "a frame that the program asks for is a view of the interpreted one, which C code does not take for a frame": """
        test_raise.TestTracebackType.test_attrs test_raise.TestTracebackType.test_constructor test_generators.doctest.email
        test_traceback.CExcReportingTests.test_KeyboardInterrupt_at_first_line_of_frame
        test_traceback.PyExcReportingTests.test_KeyboardInterrupt_at_first_line_of_frame
    """,
    "the frame of a traceback entry is made for it: its last line does not move on, and clearing it clears no variables": """
        test_exceptions.PEP626Tests.test_lineno_after_other_except test_exceptions.PEP626Tests.test_lineno_in_try
        test_traceback.MiscTracebackCases.test_clear
    """,
    "code that C runs, as a __init__ called from C or an import hook, sees the interpreter's frames with sys._getframe and warnings": """
        test_exceptions.ExceptionTests.testSettingException test_typing.IOTests.test_io_submodule test_typing.RETests.test_re_submodule
        test_typing.ProtocolTests.test_protocols_issubclass_non_callable test_typing.ProtocolTests.test_protocols_support_register
        test_typing.InternalsTests.test_collect_parameters test_inspect.TestRetrievingSourceCode.test_getmodule_file_not_found
        test_functools.TestPartialC.test_partial_as_method test_functools.TestPartialCSubclass.test_partial_as_method
        test_functools.TestPartialPy.test_partial_as_method test_functools.TestPartialPySubclass.test_partial_as_method
        test_listcomps.ListComprehensionTest.test_frame_locals
    """,
    "a generator is a native one around the interpreted frame: where C or an ended generator is asked, its code and its origin are the driver's": """
        test_types.CoroutineTests.test_async_def test_types.CoroutineTests.test_gen test_generators.doctest.syntax
        test_coroutines.OriginTrackingTest.test_origin_tracking test_coroutines.OriginTrackingTest.test_origin_tracking_warning
    """,
    "f_back of a generator's frame counts only what has been resumed by interpreted code": """
        test_generators.doctest.coroutine
    """,
    "sys.settrace has no line events for interpreted code": """
        test_patma.TestTracing.test_default_capture test_patma.TestTracing.test_default_wildcard test_patma.TestTracing.test_no_default
        test_patma.TestTracing.test_only_default_capture test_patma.TestTracing.test_only_default_wildcard
        test_patma.TestTracing.test_unreachable_code
    """,
    "the test replaces builtins that the interpreter itself uses, as len and iter": """
        test_dynamic.RebindBuiltinsTests.test_modify_builtins test_dynamic.RebindBuiltinsTests.test_modify_builtins_from_leaf_function
        test_dynamic.RebindBuiltinsTests.test_modify_builtins_while_generator_active test_iter.TestCase.test_reduce_mutating_builtins_iter
        test_functools.TestLRUC.test_lru_reentrancy_with_len test_functools.TestLRUPy.test_lru_reentrancy_with_len
        test_builtin.BuiltinTest.test_eval_builtins_mapping_reduce test_builtin.BuiltinTest.test_all_any_tuple_optimization
    """,
    "recursion in C finds a higher limit while Python is interpreted (3.11 counts both together)": """
        test_exception_group.DeepRecursionInSplitAndSubgroup.test_deep_split test_userdict.UserDictTest.test_repr_deep
        test_exception_group.DeepRecursionInSplitAndSubgroup.test_deep_subgroup test_userlist.UserListTest.test_repr_deep
        test_isinstance.TestIsInstanceIsSubclass.test_isinstance_recursion_limit
        test_isinstance.TestIsInstanceIsSubclass.test_subclass_recursion_limit
    """,
    "a call goes through lists, so that f(*args) gets an equal tuple, and no other vectorcall can be set": """
        test_call.TestPEP590.test_vectorcall_override test_call.TestPEP590.test_setvectorcall
    """,
    "handling an exception raises it anew inside the interpreter, which breaks cycles of contexts elsewhere than CPython does": """
        test_exceptions.ExceptionTests.test_no_hang_on_context_chain_cycle2
    """,
    "an error in the lookup of `throw` or `close` is raised where the generator is suspended": """
        test_yield_from.TestPEP380Operation.test_broken_getattr_handling
    """,
    "the suggestion in C looks into the frame of the error, which is made for its traceback": """
        test_traceback.CPythonSuggestionFormattingTests.test_name_error_with_instance
    """,
    "Python 3.14 enters the line of `except*` into the traceback of an exception that it wraps into a group; the interpreter does not": """
        test_traceback.CExcReportingTests.test_exception_group_wrapped_naked
        test_traceback.PyExcReportingTests.test_exception_group_wrapped_naked
    """,
    "not run: 90,000 frames deep, or a loop of many millions of instructions": """
        test_builtin.BuiltinTest.test_filter_dealloc test_traceback.TestTracebackException.test_long_context_chain
        test_traceback.TestKeywordTypoSuggestions.test_keyword_suggestions_from_file
        test_call.TestRecursion.test_super_deep test_traceback.MiscTest.test_levenshtein_distance_short_circuit
    """,
}
REASONS = {name: reason for reason, names in _GROUPS.items() for name in names.split()}
NOT_RUN = {name for name, reason in REASONS.items() if reason.startswith("not run")}
