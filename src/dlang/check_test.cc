// Mistakes by tag and place. One program a case; after '@' its line and column.

#include <gtest/gtest.h>

#include "dlang/compile.h"

namespace trapline::dlang {
namespace {

std::string mistakes_of(std::string text) {
  CompileRequest request;
  request.sources.push_back({"test", std::move(text), InputKind::kScript});
  const CompileResult result = compile(request);
  std::string out;
  for (const diag::Diagnostic& diagnostic : result.diagnostics.sorted()) {
    const diag::Position position = result.sources.position(diagnostic.range.start());
    if (!out.empty()) out += ' ';
    out += diagnostic.tag + "@" + std::to_string(position.line) + ":" +
           std::to_string(position.column);
  }
  return out;
}

TEST(Check, Names) {
  EXPECT_EQ(mistakes_of(R"d(BEGIN { trace(nothing); trace(x); x = 1; })d"),
            "IDENT_UNDEF@1:15 IDENT_UNDEF@1:31");
  EXPECT_EQ(mistakes_of(R"d(BEGIN { trace(self->a); self->a = 1; trace(self->a); })d"),
            "VAR_UNDEF@1:15");
  EXPECT_EQ(mistakes_of(R"d(BEGIN { x += 1; })d"), "VAR_UNDEF@1:9");
  EXPECT_EQ(mistakes_of(R"d(BEGIN { a[1] = 1; trace(a); })d"), "IDENT_BADREF@1:25");
  EXPECT_EQ(mistakes_of(R"d(BEGIN { trace(trace); })d"), "IDENT_BADREF@1:15");
  EXPECT_EQ(mistakes_of(R"d(BEGIN { this->a[1] = 1; })d"), "ARR_LOCAL@1:9");
  EXPECT_EQ(mistakes_of(R"d(BEGIN { trace(`max_pfn); })d"), "IDENT_UNDEF@1:15");
  EXPECT_EQ(mistakes_of(R"d(BEGIN { trace(b[2]); })d"), "VAR_UNDEF@1:15");
  EXPECT_EQ(mistakes_of(R"d(BEGIN { trace(args); trace(args[0]); })d"),
            "IDENT_BADREF@1:15 ARGS_IDX@1:28");
}

TEST(Check, Functions) {
  EXPECT_EQ(mistakes_of(R"d(BEGIN { nofunction(1); pid(); })d"), "FUNC_UNDEF@1:9 FUNC_IDKIND@1:24");
  EXPECT_EQ(mistakes_of(R"d(BEGIN { (1)(2); })d"), "FUNC_IDENT@1:9");
  EXPECT_EQ(mistakes_of(R"d(BEGIN { self->f(3); })d"), "FUNC_IDENT@1:9");
  EXPECT_EQ(mistakes_of(R"d(BEGIN { exit(); exit(1, 2); copyinstr(); strlen(1); })d"),
            "PROTO_LEN@1:9 PROTO_LEN@1:17 PROTO_LEN@1:29 PROTO_ARG@1:49");
  EXPECT_EQ(mistakes_of(R"d(BEGIN { strjoin("a"); trace(1, 2); printf(); })d"),
            "PROTO_LEN@1:9 PROTO_LEN@1:23 PROTO_LEN@1:36");
  EXPECT_EQ(mistakes_of(R"d(BEGIN { exit("no"); copyin("a", 1); trunc(1, "x"); })d"),
            "PROTO_ARG@1:14 PROTO_ARG@1:28 PROTO_ARG@1:46");
  EXPECT_EQ(mistakes_of(R"d(BEGIN { x = printf("a"); y = count(); count(); })d"),
            "OP_INCOMPAT@1:9 OP_INCOMPAT@1:26 CG_EXPR@1:39");
}

TEST(Check, Operators) {
  EXPECT_EQ(mistakes_of(R"d(BEGIN { trace(1 / 0); x = 1; x %= 0; trace(arg0 % (1 - 1)); })d"),
            "DIV_ZERO@1:15 DIV_ZERO@1:30 DIV_ZERO@1:44");
  EXPECT_EQ(
      mistakes_of(
          R"d(BEGIN { trace("a" + "b"); trace(1 + "a" == 2); trace(~"a"); trace(!"a"); trace(-"a"); })d"),
      "OP_INCOMPAT@1:15 OP_INCOMPAT@1:33 OP_INT@1:54 OP_SCALAR@1:67 OP_ARITH@1:80");
  EXPECT_EQ(
      mistakes_of(
          R"d(BEGIN { trace("a" == 1); trace(execname && 1); trace("a" * 2); trace("a" & 1); })d"),
      "OP_INCOMPAT@1:15 OP_SCALAR@1:32 OP_ARITH@1:54 OP_INT@1:70");
  EXPECT_EQ(
      mistakes_of(R"d(BEGIN { trace(*arg0); trace(*(void *)arg0); trace(&arg0); trace(&1); })d"),
      "DEREF_NONPTR@1:15 DEREF_VOID@1:29 ADDROF_VAR@1:51 ADDROF_LVAL@1:65");
  EXPECT_EQ(mistakes_of(R"d(BEGIN { 1 = 2; arg0 = 1; pid++; x = "a"; x++; })d"),
            "OP_LVAL@1:9 OP_WRITE@1:16 OP_WRITE@1:26 OP_SCALAR@1:42");
  EXPECT_EQ(
      mistakes_of(
          R"d(BEGIN { trace(arg0 ? 1 : "a"); trace("a" ? 1 : 2); trace((struct nope)1); trace((string)1); })d"),
      "OP_INCOMPAT@1:15 OP_SCALAR@1:38 CAST_INVAL@1:58");
  EXPECT_EQ(mistakes_of(R"d(struct s { int a : 3; int b[4]; };
BEGIN { this->p = (struct s *)arg0; trace(this->p->c); trace(this->p.a); trace(arg0->a); trace(sizeof(this->p->a)); trace(this->p->b[4]); trace(&this->p->a); })d"),
            "TYPE_MEMBER@2:52 OP_SOU@2:62 OP_PTR@2:80 SIZEOF_BITFIELD@2:96 ARR_BOUNDS@2:123 "
            "ADDROF_BITFIELD@2:145");
  EXPECT_EQ(
      mistakes_of(
          R"d(BEGIN { x = 1; x = "a"; s = "a"; s = 1; self->s = "a"; self->s = 0; s = 0; })d"),
      "OP_INCOMPAT@1:16 OP_INCOMPAT@1:34");
}

TEST(Check, Arrays) {
  EXPECT_EQ(mistakes_of(R"d(BEGIN { a[1] = 1; a[1, 2] = 1; a["x"] = 2; trace(a[1]); })d"),
            "PROTO_LEN@1:19 PROTO_ARG@1:34");
  EXPECT_EQ(mistakes_of(R"d(int t[int, string];
BEGIN { t[1, "a"] = 2; t["a", 1] = 2; t[1] = 2; })d"),
            "PROTO_ARG@2:26 PROTO_LEN@2:39");
  EXPECT_EQ(mistakes_of(R"d(BEGIN { x = 1; trace(x[1]); a[trace(1)] = 1; })d"),
            "DEREF_NONPTR@1:22 KEY_TYPE@1:31");
}

TEST(Check, Aggregations) {
  EXPECT_EQ(mistakes_of(R"d(BEGIN { @a = count(); @a = sum(1); @b = 1; @c = trace(1); @d; })d"),
            "AGG_REDEF@1:23 AGG_FUNC@1:41 AGG_FUNC@1:49 IDENT_UNDEF@1:59");
  EXPECT_EQ(
      mistakes_of(
          R"d(BEGIN { @a[1] = count(); @a["x"] = count(); @a = count(); @a[1][2] = count(); })d"),
      "PROTO_ARG@1:29 PROTO_LEN@1:45 AGG_MDIM@1:59");
  EXPECT_EQ(
      mistakes_of(
          R"d(BEGIN { @a = sum("x"); @b = quantize(1, "x"); @c = quantize(1, 2, 3); @d = avg(); })d"),
      "AGG_SCALAR@1:18 PROTO_ARG@1:41 PROTO_LEN@1:47 PROTO_LEN@1:76");
  EXPECT_EQ(mistakes_of(
                R"d(BEGIN { printa(@nothing); clear(1); normalize(@nothing, 2); trunc(x, 1); })d"),
            "IDENT_UNDEF@1:16 CLEAR_AGGARG@1:33 IDENT_UNDEF@1:47 IDENT_UNDEF@1:67");
  EXPECT_EQ(mistakes_of(R"d(BEGIN /@a = count()/ { @a = count(); })d"), "PRED_SCALAR@1:8");
  EXPECT_EQ(
      mistakes_of(
          R"d(BEGIN { @a = lquantize(1, 2, 1); @b = lquantize(1, 0, 10, 20); @c = lquantize(1, arg0, 2); @d = lquantize(1, 0, 100000); @e = lquantize(1, 0, 10, 0); @f = lquantize(1, 4294967296, 5); @g = lquantize(1, 0, 10, 70000); })d"),
      "LQUANT_MISMATCH@1:30 LQUANT_STEPLARGE@1:59 LQUANT_BASETYPE@1:82 LQUANT_STEPSMALL@1:113 "
      "LQUANT_STEPTYPE@1:147 LQUANT_BASEVAL@1:169 LQUANT_STEPVAL@1:210");
  EXPECT_EQ(
      mistakes_of(
          R"d(BEGIN { @a = lquantize(1, 0, 10, 1); @a = lquantize(1, 1, 10, 1); @a = lquantize(1, 0, 20, 1); @a = lquantize(1, 0, 10, 2); })d"),
      "LQUANT_MATCHBASE@1:38 LQUANT_MATCHLIM@1:67 LQUANT_MATCHSTEP@1:96");
  EXPECT_EQ(
      mistakes_of(
          R"d(BEGIN { @a = llquantize(1, 1, 0, 6, 10); @b = llquantize(1, 10, 3, 2, 10); @c = llquantize(1, 10, 0, 30, 10); @d = llquantize(1, 10, 0, 6, 7); @e = llquantize(1, 10, 0, 6, 0); @f = llquantize(1, 10, 0, 6, 30); @g = llquantize(1, arg0, 0, 1, 1); })d"),
      "LLQUANT_FACTORVAL@1:28 LLQUANT_HMAGVAL@1:68 LLQUANT_HMAGVAL@1:102 LLQUANT_STEPVAL@1:140 "
      "LLQUANT_STEPTYPE@1:173 LLQUANT_STEPVAL@1:206 LLQUANT_FACTORTYPE@1:230");
  EXPECT_EQ(
      mistakes_of(
          R"d(BEGIN { @a[1] = count(); @b["x"] = count(); @c = count(); printa(@a, @b); printa(@a, @c); printa("x"); printa(1); printa("%d", @b); printa("%d %d", @a); })d"),
      "PRINTA_AGGPROTO@1:70 PRINTA_AGGKEY@1:86 PRINTA_PROTO@1:91 PRINTA_AGGARG@1:111 "
      "PRINTF_ARG_TYPE@1:128 PRINTF_ARG_PROTO@1:140");
}

TEST(Check, Formats) {
  EXPECT_EQ(
      mistakes_of(
          R"d(BEGIN { printf("%d"); printf("%d", "a"); printf("%s", 1); printf("%d", 1, 2); })d"),
      "PRINTF_ARG_PROTO@1:16 PRINTF_ARG_TYPE@1:36 PRINTF_ARG_TYPE@1:55 PRINTF_ARG_EXTRA@1:75");
  EXPECT_EQ(mistakes_of(
                R"d(BEGIN { printf(execname); printf(""); printf("%z", 1); printf("%@d", 1); })d"),
            "PRINTF_ARG_FMT@1:16 PRINTF_FMT_EMPTY@1:34 SYNTAX@1:46 PRINTF_AGG_CONV@1:63");
  EXPECT_EQ(
      mistakes_of(
          R"d(BEGIN { printf("%*d", "a", 1); printf("%*d", 1); printf("%.*s"); printf("%hd", 1); })d"),
      "PRINTF_DYN_TYPE@1:23 PRINTF_ARG_PROTO@1:39 PRINTF_DYN_PROTO@1:57 PRINTF_ARG_TYPE@1:80");
  EXPECT_EQ(
      mistakes_of(R"d(BEGIN { trace(freopen("x")); trace((void)1); @a = count(); trace(@a); })d"),
      "TRACE_VOID@1:15 TRACE_VOID@1:36 TRACE_DYN@1:66");
}

TEST(Check, Declarations) {
  EXPECT_EQ(
      mistakes_of(
          R"d(int x; int x; string x; int pid; int a[]; void v; struct nope n; int m[0]; int k[int]; char k;)d"),
      "DECL_IDRED@1:22 DECL_IDRED@1:29 DECL_ARRNULL@1:38 DECL_VOIDOBJ@1:48 DECL_INCOMPLETE@1:63 "
      "DECL_ARRSUB@1:72 DECL_IDRED@1:93");
  EXPECT_EQ(
      mistakes_of(
          R"d(char short c; void unsigned u; unsigned string s; long string t; int char i; long short j; static int z; int; self this int q;)d"),
      "DECL_CHARATTR@1:1 DECL_VOIDATTR@1:15 DECL_SIGNINT@1:41 DECL_LONGINT@1:56 DECL_COMBO@1:70 "
      "UNKNOWN@1:78 DECL_BADCLASS@1:92 DECL_USELESS@1:106 DECL_CLASS@1:116");
  EXPECT_EQ(
      mistakes_of(
          R"d(struct a { int x; int x; }; struct b { void v; }; struct c { int w : 33; int q : 0; string s : 2; }; struct d { int y; }; struct d { int z; };)d"),
      "UNKNOWN@1:23 DECL_VOIDOBJ@1:45 DECL_BFSIZE@1:70 DECL_BFCONST@1:82 DECL_BFTYPE@1:92 "
      "DECL_TYPERED@1:123");
  EXPECT_EQ(
      mistakes_of(
          R"d(enum e { A = 3000000000 }; enum f { B = arg0 }; enum g { C, C }; enum h { pid };)d"),
      "DECL_ENOFLOW@1:10 DECL_ENCONST@1:41 UNKNOWN@1:61 DECL_IDRED@1:75");
  EXPECT_EQ(
      mistakes_of(
          R"d(this int t[string]; typedef int size_t; typedef int mine; typedef long mine; int mine;)d"),
      "DECL_LOCASSC@1:10 DECL_IDRED@1:33 DECL_LONGINT@1:72 DECL_IDRED@1:82");
  EXPECT_EQ(
      mistakes_of(
          R"d(inline int x = "a"; inline int y = y; inline int pid = 1; inline void z = 1; inline int ok = 1; int ok;)d"),
      "OP_INCOMPAT@1:16 IDENT_UNDEF@1:36 DECL_IDRED@1:50 DECL_VOIDOBJ@1:71 DECL_IDRED@1:101");
  EXPECT_EQ(mistakes_of(R"d(int f(int, void); int g(void x); int arr[int, void];)d"),
            "DECL_PROTO_VOID@1:6 DECL_PROTO_NAME@1:25 DECL_PROTO_TYPE@1:47");
}

TEST(Check, Predicates) {
  EXPECT_EQ(
      mistakes_of(
          R"d(BEGIN /"a"/ { } END /y == 1/ { y = 1; } tick-1s /z++/ { trace(z); } tick-2s /nope/ { trace(nada); })d"),
      "PRED_SCALAR@1:8 IDENT_UNDEF@1:78 IDENT_UNDEF@1:92");
}

TEST(Check, Order) {
  EXPECT_EQ(
      mistakes_of(
          R"d(BEGIN { speculate(1); printf("x"); @a = count(); } END { printf("x"); speculate(1); } tick-1s { printf("x"); commit(1); commit(1); trace(1); } tick-2s { speculate(1); exit(0); })d"),
      "AGG_SPEC@1:36 SPEC_DREC@1:71 COMM_DREC@1:110 EXIT_SPEC@1:168");
}

// As DTrace: what the statements make exists in the predicate, and the other way round.
TEST(Check, StatementsAndPredicatesMakeNamesForEachOther) {
  EXPECT_EQ(mistakes_of("BEGIN /x++/ { trace(x); }"), "");
  EXPECT_EQ(mistakes_of("BEGIN /x == 0/ { trace(x++); }"), "");
  // DTrace stops at the first name it does not know and so refuses this one.
  EXPECT_EQ(mistakes_of("BEGIN /x++ && y == 0/ { trace(x + y++); }"), "");
  EXPECT_EQ(mistakes_of("BEGIN /nope/ { trace(nada); }"), "IDENT_UNDEF@1:8 IDENT_UNDEF@1:22");
}

TEST(Check, OneMistakeIsReportedOnce) {
  EXPECT_EQ(mistakes_of("inline int a = nope; inline int b = a = 1; BEGIN { trace(a); a++; }"),
            "IDENT_UNDEF@1:16");
  EXPECT_EQ(mistakes_of("inline int a = nope; BEGIN /x++/ { trace(x + a); }"), "IDENT_UNDEF@1:16");
  EXPECT_EQ(mistakes_of("BEGIN { x = nothing; y = x + 1; trace(y); trace(x); }"),
            "IDENT_UNDEF@1:13");
  EXPECT_EQ(mistakes_of("BEGIN { this->a = nope(); this->b = this->a; trace(this->b); }"),
            "FUNC_UNDEF@1:19");
  EXPECT_EQ(mistakes_of("BEGIN { @ = tick-1(); }"), "FUNC_IDENT@1:18");
  // What the line was for may be what makes the rest readable.
  EXPECT_EQ(mistakes_of("inline int foo\n#pragma D attributes nonsense foo\nBEGIN { }"),
            "PRAGMA_INVAL@2:2");
}

TEST(Check, MistakesWithWhatIsDefinedBeforeAllProgramsAreInTheProgram) {
  EXPECT_EQ(mistakes_of("BEGIN { @a[curpsinfo] = count(); }"), "KEY_TYPE@1:12");
  EXPECT_EQ(mistakes_of("BEGIN { trace(curpsinfo); curlwpsinfo; }"), "TRACE_DYN@1:15");
  EXPECT_EQ(mistakes_of("BEGIN { curlwpsinfo; }"), "UNKNOWN@1:9");
}

TEST(Check, Providers) {
  const std::string long_name(64, 'x');
  EXPECT_EQ(mistakes_of("provider p { probe " + long_name + "(); };"), "PROV_BADNAME@1:14");
  EXPECT_EQ(mistakes_of("provider " + long_name + " { probe f(); };"), "PROV_BADNAME@1:10");
  // Two underscores are one character of the name.
  EXPECT_EQ(mistakes_of("provider p { probe a__" + std::string(61, 'x') + "(); };"), "");
  EXPECT_EQ(mistakes_of("provider p1 { probe f(); };"), "PROV_BADNAME@1:10");
  EXPECT_EQ(mistakes_of("provider p { probe f(int); probe f(int); };"), "");
  EXPECT_EQ(mistakes_of("provider p { probe f(int); probe f(long); };"), "PROV_INCOMPAT@1:28");
  EXPECT_EQ(mistakes_of("provider p { probe f(int); }; provider p { probe f(); };"),
            "PROV_INCOMPAT@1:44");
}

TEST(Check, ProvidersAreGivenWithTheirTypesReduced) {
  CompileRequest request;
  request.sources.push_back({"test",
                             "struct s { int x; }; typedef struct s s_t; enum e { A };"
                             "provider p { probe f(int, uint8_t, s_t *, char *, string, char [4], "
                             "unsigned char *) : (s_t *);"
                             " probe g(enum e, int (*)(int), double, struct s); };",
                             InputKind::kScript});
  const CompileResult result = compile(request);
  ASSERT_TRUE(result.program);
  ASSERT_EQ(result.program->providers.size(), 1u);
  const plan::Provider& provider = result.program->providers[0];
  EXPECT_EQ(provider.name, "p");
  ASSERT_EQ(provider.probes.size(), 2u);
  using Kind = plan::ProbeArgumentKind;
  const auto kinds = [](const plan::ProviderProbe& probe) {
    std::vector<std::pair<Kind, int>> all;
    for (const plan::ProbeArgument& argument : probe.arguments) {
      all.emplace_back(argument.kind, argument.is_signed ? -argument.size : argument.size);
    }
    return all;
  };
  EXPECT_EQ(kinds(provider.probes[0]), (std::vector<std::pair<Kind, int>>{{Kind::kInteger, -4},
                                                                          {Kind::kInteger, 1},
                                                                          {Kind::kPointer, 8},
                                                                          {Kind::kString, 8},
                                                                          {Kind::kString, 8},
                                                                          {Kind::kString, 8},
                                                                          {Kind::kPointer, 8}}));
  EXPECT_EQ(kinds(provider.probes[1]),
            (std::vector<std::pair<Kind, int>>{{Kind::kInteger, -4},
                                               {Kind::kFunctionPointer, 8},
                                               {Kind::kFloat, 8},
                                               {Kind::kOther, 0}}));
}

}  // namespace
}  // namespace trapline::dlang
