#include "dlang/compile.h"

#include <gtest/gtest.h>

#include "diag/render.h"

namespace trapline::dlang {
namespace {

// The plan as text, or the diagnostics.
std::string plan_of(std::string text, std::vector<std::string> options = {}) {
  CompileRequest request;
  plan::Options set;
  for (const std::string& option : options) {
    const auto equals = option.find('=');
    EXPECT_TRUE(set.set(option.substr(0, equals), option.substr(equals + 1)));
  }
  request.options = &set;
  request.sources.push_back({"test", std::move(text), InputKind::kName});
  request.macros.target = 7;
  const CompileResult result = compile(request);
  if (result.program) return plan::to_text(*result.program);
  return diag::render_all(result.sources, result.diagnostics);
}

TEST(Compile, PrintfAndExit) {
  EXPECT_EQ(plan_of(R"d(BEGIN { printf("%d\n", 1 + 2); exit(0); })d"),
            R"d(clause 0 line 1: :::BEGIN
  record 8 bytes
  field 0: int32 at 0
  field 1: int32 at 4
  action printf %d<0> "\n" fields 0
  action exit fields 1
    0: reserve
    1: r0 = 3
    2: field 0 = r0
    3: r1 = 0
    4: field 1 = r1
    5: exit r1
    6: end
)d");
}

TEST(Compile, RegistersOfUserMode) {
  EXPECT_NE(plan_of("BEGIN { trace(uregs[R_PC]); }").find("r0 = uregs[16]"), std::string::npos);
  EXPECT_NE(plan_of("BEGIN { trace(uregs[R_RSP]); }").find("r0 = uregs[19]"), std::string::npos);
  EXPECT_NE(plan_of("BEGIN { trace(uregs[26]); }").find("uregs[] has no register 26"),
            std::string::npos);
}

TEST(Compile, OnOneProcessorAlone) {
  EXPECT_EQ(plan_of("BEGIN /arg0/ { x = 1; }", {"cpu=3"}),
            R"d(global x: int32 at 0
sizes: globals 8, self 0, this 0, direct 0
clause 0 line 1: :::BEGIN
    0: r0 = cpu
    1: r1 = 3
    2: r2 = eq r0 r1
    3: if r2 == 0 jump 8
    4: r3 = arg0
    5: if r3 == 0 jump 8
    6: r4 = 1
    7: x = r4
    8: end
)d");
}

TEST(Compile, AggregationsByProcessor) {
  EXPECT_EQ(plan_of("BEGIN { @[arg0] = count(); }", {"aggpercpu=1"}),
            R"d(@[int64, int32]: count, 1 value words
clause 0 line 1: :::BEGIN
  scratch 16
    0: r0 = arg0
    1: r1 = cpu
    2: @[int64 r0, int32 r1] <-  ; scratch 0
    3: end
)d");
}

TEST(Compile, ProcessorsOfWhichNobodyKnowsAreAFault) {
  const std::string plan = plan_of("BEGIN { trace(curcpu->cpu_chip); }");
  EXPECT_NE(plan.find("curcpu: bytes"), std::string::npos) << plan;
  EXPECT_NE(plan.find("r0 = cpu"), std::string::npos) << plan;
}

TEST(Compile, TheOneLiner) {
  EXPECT_EQ(plan_of(R"d(pid$target::malloc:entry { @sizes = quantize(arg0); })d"),
            R"d(@sizes: quantize, direct 128 words at 0
sizes: globals 0, self 0, this 0, direct 1024
clause 0 line 1: pid7::malloc:entry
    0: r0 = arg0
    1: @sizes <- r0
    2: end
)d");
}

TEST(Compile, PredicatesShortCircuit) {
  EXPECT_EQ(
      plan_of(R"d(p:::n /arg0 > 10 && execname == "sh"/ { @[execname, arg1] = sum(arg2); })d"),
      R"d(string 0 "sh"
@[string257, int64]: sum, 1 value words
clause 0 line 1: p:::n
  scratch 280
    0: r1 = arg0
    1: r2 = 10
    2: r3 = lt r2 r1
    3: if r3 == 0 jump 12
    4: r4 = execname
    5: r5 = string 0
    6: r6 = strcmp r4 r5
    7: r7 = 0
    8: r8 = eq r6 r7
    9: if r8 == 0 jump 12
   10: r0 = 1
   11: jump 13
   12: r0 = 0
   13: if r0 == 0 jump 18
   14: r9 = execname
   15: r10 = arg1
   16: r11 = arg2
   17: @[string257 r9, int64 r10] <- r11  ; scratch 0
   18: end
)d");
}

TEST(Compile, DefaultActions) {
  EXPECT_EQ(plan_of(R"d(BEGIN, END)d"),
            R"d(clause 0 line 1: :::BEGIN :::END
  record 0 bytes
    0: reserve
    1: end
)d");
}

TEST(Compile, ScopesAndStores) {
  EXPECT_EQ(
      plan_of(
          R"d(BEGIN { x = 1; x += arg0; y = (char)x; self->z++; this->t = timestamp - self->z; })d"),
      R"d(global x: int32 at 0
global y: char at 8
self z: int64 at 0
this t: uint64 at 0
sizes: globals 16, self 8, this 8, direct 0
clause 0 line 1: :::BEGIN
  scratch 8
    0: r0 = 1
    1: x = r0
    2: r1 = x
    3: r2 = arg0
    4: r3 = add r1 r2
    5: r4 = sext32 r3
    6: x = r4
    7: r5 = x
    8: r6 = sext8 r5
    9: y = r6
   10: r7 = self->z
   11: r8 = 1
   12: r9 = add r7 r8
   13: self->z = r9
   14: r10 = timestamp
   15: r11 = self->z
   16: r12 = sub r10 r11
   17: this->t = r12
   18: end
)d");
}

TEST(Compile, AssociativeArrays) {
  EXPECT_EQ(
      plan_of(
          R"d(BEGIN { a[1, "k"] = 5; trace(a[2, "m"]); a[1, "k"] = 0; self->b[arg0] = "v"; trace(self->b[1]); })d",
          {"dynvarsize=4k", "strsize=32"}),
      R"d(string 0 "k"
string 1 "m"
string 2 "v"
global a[int32, string33]: int32 at 0, 16 cells of 80
self b[int64]: string33 at 1280, 16 cells of 80
sizes: globals 2560, self 0, this 0, direct 0
clause 0 line 1: :::BEGIN
  record 40 bytes
  scratch 56
  field 0: int32 at 0
  field 1: string33 at 4
  action trace fields 0
  action trace fields 1
    0: reserve
    1: r0 = 5
    2: r1 = 1
    3: r2 = string 0
    4: a[int32 r1, string33 r2] = r0  ; scratch 0
    5: r3 = 2
    6: r4 = string 1
    7: r5 = a[int32 r3, string33 r4]  ; scratch 0
    8: field 0 = r5
    9: r6 = 0
   10: r7 = 1
   11: r8 = string 0
   12: a[int32 r7, string33 r8] = r6  ; scratch 0
   13: r9 = string 2
   14: r10 = arg0
   15: self->b[int64 r10] = r9  ; scratch 0
   16: r11 = 1
   17: r12 = self->b[int64 r11]  ; scratch 0
   18: field 1 = r12
   19: end
)d");
}

TEST(Compile, Memory) {
  EXPECT_EQ(
      plan_of(
          R"d(BEGIN { trace(*(int *)copyin(arg0, 4)); trace(copyinstr(arg1, 5)); trace(stringof(arg2)); })d"),
      R"d(clause 0 line 1: :::BEGIN
  record 520 bytes
  scratch 264
  field 0: int32 at 0
  field 1: string257 at 4
  field 2: string257 at 261
  action trace fields 0
  action trace fields 1
  action trace fields 2
    0: reserve
    1: r0 = arg0
    2: r1 = 4
    3: r2 = copyin r0 r1
    4: r3 = sload32 [r2]
    5: field 0 = r3
    6: r4 = arg1
    7: r5 = 5
    8: r6 = copyinstr r4 r5  ; scratch 0
    9: field 1 = r6
   10: r7 = arg2
   11: r8 = copyinstr r7  ; scratch 0
   12: field 2 = r8
   13: end
)d");
}

TEST(Compile, ConditionalsAndLogic) {
  EXPECT_EQ(
      plan_of(
          R"d(BEGIN { trace(arg0 ? "yes" : execname); trace(arg0 || arg1); trace(arg0 ^^ arg1); })d"),
      R"d(string 0 "yes"
clause 0 line 1: :::BEGIN
  record 272 bytes
  field 0: string257 at 0
  field 1: int32 at 260
  field 2: int32 at 264
  action trace fields 0
  action trace fields 1
  action trace fields 2
    0: reserve
    1: r1 = arg0
    2: if r1 == 0 jump 6
    3: r2 = string 0
    4: r0 = r2
    5: jump 8
    6: r3 = execname
    7: r0 = r3
    8: field 0 = r0
    9: r5 = arg0
   10: if r5 != 0 jump 15
   11: r6 = arg1
   12: if r6 != 0 jump 15
   13: r4 = 0
   14: jump 16
   15: r4 = 1
   16: field 1 = r4
   17: r7 = arg0
   18: r8 = arg1
   19: r9 = 0
   20: r10 = ne r7 r9
   21: r11 = ne r8 r9
   22: r12 = xor r10 r11
   23: field 2 = r12
   24: end
)d");
}

TEST(Compile, Quantizers) {
  EXPECT_EQ(
      plan_of(
          R"d(BEGIN { @a = lquantize(arg0, 0, 100, 10); @b[pid] = llquantize(arg1, 10, 0, 6, 20, arg2); @c = lquantize(arg0, 0, 60000); @m = min(arg0); @s = stddev(arg0); @v = avg(arg0); })d"),
      R"d(@a: lquantize(0, step 10, 10 levels), direct 13 words at 0
@b[int32]: llquantize(10, 0, 6, 20), 255 value words
@c: lquantize(0, step 1, 60000 levels), 1 value words, sparse
@m: min, 1 value words
@s: stddev, 4 value words
@v: avg, 2 value words
sizes: globals 0, self 0, this 0, direct 104
clause 0 line 1: :::BEGIN
  scratch 8
    0: r0 = arg0
    1: @a <- r0
    2: r1 = pid
    3: r2 = arg1
    4: r3 = arg2
    5: @b[int32 r1] <- r2 weight r3  ; scratch 0
    6: r4 = arg0
    7: @c <- r4  ; scratch 0
    8: r5 = arg0
    9: @m <- r5
   10: r6 = arg0
   11: @s <- r6
   12: r7 = arg0
   13: @v <- r7
   14: end
)d");
}

TEST(Compile, PrintaAndTheActionsOnAggregations) {
  EXPECT_EQ(
      plan_of(
          R"d(BEGIN { @a[1, "x"] = count(); } END { printa("%d %s %@5d %@u\n", @a, @a); printa(@a); trunc(@a, -3); trunc(@a); normalize(@a, 1000); denormalize(@a); clear(@a); })d"),
      R"d(string 0 "x"
@a[int32, string257]: count, 1 value words
clause 0 line 1: :::BEGIN
  scratch 280
    0: r0 = 1
    1: r1 = string 0
    2: @a[int32 r0, string257 r1] <-  ; scratch 0
    3: end
clause 1 line 1: :::END
  record 16 bytes
  field 0: int64 at 0
  field 1: uint64 at 8
  action printa %d<0> " " %s<1> " " %@5d<0> " " %@u<1> "\n" @a @a
  action printa @a
  action trunc @a fields 0
  action trunc @a
  action normalize @a fields 1
  action denormalize @a
  action clear @a
    0: reserve
    1: r0 = -3
    2: field 0 = r0
    3: r1 = 1000
    4: field 1 = r1
    5: end
)d");
}

TEST(Compile, StructuresAndBitFields) {
  EXPECT_EQ(
      plan_of(R"d(struct s { int a; unsigned b : 3; int c : 5; char name[8]; struct s *next; };
BEGIN { this->p = (struct s *)arg0; trace(this->p->a); trace(this->p->next->b); trace(this->p->c); printf("%s", this->p->name); trace((long)&this->p->name[2]); trace(this->p[2].a); })d"),
      R"d(this p: pointer at 0
sizes: globals 0, self 0, this 8, direct 0
clause 0 line 2: :::BEGIN
  record 288 bytes
  scratch 272
  field 0: int32 at 0
  field 1: uint32 at 4
  field 2: int32 at 8
  field 3: string257 at 12
  field 4: int64 at 272
  field 5: int32 at 280
  action trace fields 0
  action trace fields 1
  action trace fields 2
  action printf %s<3> fields 3
  action trace fields 4
  action trace fields 5
    0: reserve
    1: r0 = arg0
    2: this->p = r0
    3: r1 = this->p
    4: r2 = sload32 [r1]
    5: field 0 = r2
    6: r3 = this->p
    7: r4 = 16
    8: r5 = add r3 r4
    9: r6 = zload64 [r5]
   10: r7 = 4
   11: r8 = add r6 r7
   12: r9 = zload32 [r8]
   13: r10 = 61
   14: r11 = shl r9 r10
   15: r12 = 61
   16: r13 = shr r11 r12
   17: field 1 = r13
   18: r14 = this->p
   19: r15 = 4
   20: r16 = add r14 r15
   21: r17 = zload32 [r16]
   22: r18 = 56
   23: r19 = shl r17 r18
   24: r20 = 59
   25: r21 = sar r19 r20
   26: field 2 = r21
   27: r22 = this->p
   28: r23 = 5
   29: r24 = add r22 r23
   30: r25 = 8
   31: r26 = copyinstr r24 r25  ; scratch 8
   32: field 3 = r26
   33: r27 = this->p
   34: r28 = 5
   35: r29 = add r27 r28
   36: r30 = 2
   37: r31 = add r29 r30
   38: field 4 = r31
   39: r32 = this->p
   40: r33 = 2
   41: r34 = 24
   42: r35 = mul r33 r34
   43: r36 = add r32 r35
   44: r37 = sload32 [r36]
   45: field 5 = r37
   46: end
)d");
}

TEST(Compile, PointerArithmetic) {
  EXPECT_EQ(
      plan_of(
          R"d(BEGIN { this->p = (int *)arg0; trace(*(this->p + arg1)); trace((this->p + 3) - this->p); this->p++; this->p -= 2; })d"),
      R"d(this p: pointer at 0
sizes: globals 0, self 0, this 8, direct 0
clause 0 line 1: :::BEGIN
  record 16 bytes
  scratch 8
  field 0: int32 at 0
  field 1: int64 at 8
  action trace fields 0
  action trace fields 1
    0: reserve
    1: r0 = arg0
    2: this->p = r0
    3: r1 = this->p
    4: r2 = arg1
    5: r3 = 4
    6: r4 = mul r2 r3
    7: r5 = add r1 r4
    8: r6 = sload32 [r5]
    9: field 0 = r6
   10: r7 = this->p
   11: r8 = 3
   12: r9 = 4
   13: r10 = mul r8 r9
   14: r11 = add r7 r10
   15: r12 = this->p
   16: r13 = sub r11 r12
   17: r14 = 4
   18: r15 = div r13 r14
   19: field 1 = r15
   20: r16 = this->p
   21: r17 = 4
   22: r18 = add r16 r17
   23: this->p = r18
   24: r19 = this->p
   25: r20 = 2
   26: r21 = 4
   27: r22 = mul r20 r21
   28: r23 = sub r19 r22
   29: this->p = r23
   30: end
)d");
}

TEST(Compile, Strings) {
  EXPECT_EQ(
      plan_of(
          R"d(BEGIN { this->s = strjoin(execname, "-x"); trace(strlen(this->s)); trace(this->s < probefunc); self->n = this->s; trace(self->n == NULL); self->n = 0; })d",
          {"strsize=64"}),
      R"d(string 0 "-x"
this s: string65 at 0
self n: string65 at 0
sizes: globals 0, self 72, this 72, direct 0
clause 0 line 1: :::BEGIN
  record 16 bytes
  scratch 144
  field 0: uint64 at 0
  field 1: int32 at 8
  field 2: int32 at 12
  action trace fields 0
  action trace fields 1
  action trace fields 2
    0: reserve
    1: r0 = execname
    2: r1 = string 0
    3: r2 = strjoin r0 r1  ; scratch 72
    4: this->s = r2
    5: r3 = this->s
    6: r4 = strlen r3
    7: field 0 = r4
    8: r5 = this->s
    9: r6 = probefunc
   10: r7 = strcmp r5 r6
   11: r8 = 0
   12: r9 = lt r7 r8
   13: field 1 = r9
   14: r10 = this->s
   15: self->n = r10
   16: r11 = self->n
   17: r12 = 0
   18: r13 = strcmp r11 r12
   19: r14 = 0
   20: r15 = eq r13 r14
   21: field 2 = r15
   22: r16 = 0
   23: self->n = r16
   24: end
)d");
}

TEST(Compile, DynamicWidths) {
  EXPECT_EQ(plan_of(R"d(BEGIN { printf("%*d|%-*.*s|%c%%", 5, arg0, 10, 3, probename, 'x'); })d"),
            R"d(clause 0 line 1: :::BEGIN
  record 288 bytes
  field 0: int32 at 0
  field 1: int64 at 8
  field 2: int32 at 16
  field 3: int32 at 20
  field 4: string257 at 24
  field 5: int32 at 284
  action printf %*[field 0]d<1> "|" %-*[field 2].*[field 3]s<4> "|" %c<5> "%" fields 0 1 2 3 4 5
    0: reserve
    1: r0 = 5
    2: field 0 = r0
    3: r1 = arg0
    4: field 1 = r1
    5: r2 = 10
    6: field 2 = r2
    7: r3 = 3
    8: field 3 = r3
    9: r4 = probename
   10: field 4 = r4
   11: r5 = 120
   12: field 5 = r5
   13: end
)d");
}

TEST(Compile, InlinesExpand) {
  EXPECT_EQ(
      plan_of(
          R"d(inline int LIMIT = 2 + 3; inline string who = execname; inline int twice[int x] = x + x;
BEGIN { trace(LIMIT); trace(who); trace(twice[arg0]); trace(sizeof(int) * LIMIT); })d"),
      R"d(clause 0 line 2: :::BEGIN
  record 280 bytes
  field 0: int32 at 0
  field 1: string257 at 4
  field 2: int32 at 264
  field 3: uint64 at 272
  action trace fields 0
  action trace fields 1
  action trace fields 2
  action trace fields 3
    0: reserve
    1: r0 = 5
    2: field 0 = r0
    3: r1 = execname
    4: field 1 = r1
    5: r2 = arg0
    6: r3 = sext32 r2
    7: r4 = add r3 r3
    8: r5 = sext32 r4
    9: field 2 = r5
   10: r6 = 20
   11: field 3 = r6
   12: end
)d");
}

TEST(Compile, EnumeratorsAndConstants) {
  EXPECT_EQ(plan_of(R"d(enum e { A, B = 7, C };
BEGIN { trace(C); trace(SIGINT); trace(NULL); trace('a'); trace(1 << 31); trace(-1 > 0u); trace((char)300); })d"),
            R"d(clause 0 line 2: :::BEGIN
  record 32 bytes
  field 0: int32 at 0
  field 1: int32 at 4
  field 2: int32 at 8
  field 3: int32 at 12
  field 4: int32 at 16
  field 5: int32 at 20
  field 6: char at 24
  action trace fields 0
  action trace fields 1
  action trace fields 2
  action trace fields 3
  action trace fields 4
  action trace fields 5
  action trace fields 6
    0: reserve
    1: r0 = 8
    2: field 0 = r0
    3: r1 = 2
    4: field 1 = r1
    5: r2 = 0
    6: field 2 = r2
    7: r3 = 97
    8: field 3 = r3
    9: r4 = 2147483648
   10: field 4 = r4
   11: r5 = 1
   12: field 5 = r5
   13: r6 = 44
   14: field 6 = r6
   15: end
)d");
}

TEST(Compile, SignedAndUnsigned) {
  EXPECT_EQ(
      plan_of(
          R"d(BEGIN { this->u = (unsigned)arg0; this->i = (int)arg1; trace(this->u < this->i); trace(this->i / 3); trace(this->u / 3); trace(this->i >> 1); trace(this->u >> 1); trace(this->i % this->u); })d"),
      R"d(this u: uint32 at 0
this i: int32 at 8
sizes: globals 0, self 0, this 16, direct 0
clause 0 line 1: :::BEGIN
  record 24 bytes
  scratch 16
  field 0: int32 at 0
  field 1: int32 at 4
  field 2: uint32 at 8
  field 3: int32 at 12
  field 4: uint32 at 16
  field 5: uint32 at 20
  action trace fields 0
  action trace fields 1
  action trace fields 2
  action trace fields 3
  action trace fields 4
  action trace fields 5
    0: reserve
    1: r0 = arg0
    2: r1 = zext32 r0
    3: this->u = r1
    4: r2 = arg1
    5: r3 = sext32 r2
    6: this->i = r3
    7: r4 = this->u
    8: r5 = this->i
    9: r6 = ult r4 r5
   10: field 0 = r6
   11: r7 = this->i
   12: r8 = 3
   13: r9 = div r7 r8
   14: field 1 = r9
   15: r10 = this->u
   16: r11 = 3
   17: r12 = udiv r10 r11
   18: field 2 = r12
   19: r13 = this->i
   20: r14 = 1
   21: r15 = sar r13 r14
   22: field 3 = r15
   23: r16 = this->u
   24: r17 = 1
   25: r18 = shr r16 r17
   26: field 4 = r18
   27: r19 = this->i
   28: r20 = this->u
   29: r21 = urem r19 r20
   30: field 5 = r21
   31: end
)d");
}

// What was asked for, and the region that the classic messages name.
TEST(Compile, SeveralSourcesAreOneProgram) {
  CompileRequest request;
  request.sources.push_back({"first", "BEGIN { x = 1; this->t = 1; }", InputKind::kName});
  request.sources.push_back(
      {"second.d", "END { trace(x); this->t = \"other\"; }", InputKind::kScript});
  const CompileResult result = compile(request);
  ASSERT_TRUE(result.program) << diag::render_all(result.sources, result.diagnostics);
  ASSERT_EQ(result.program->clauses.size(), 2u);
  EXPECT_EQ(result.program->clauses[0].probes.front().name, "BEGIN");
  EXPECT_EQ(result.program->clauses[1].probes.front().name, "END");
  EXPECT_EQ(result.program->variables.size(), 3u);  // x, and one `t` a source
}

TEST(Compile, KindsOfDescriptions) {
  const auto probe = [](InputKind kind, std::string text) {
    CompileRequest request;
    request.sources.push_back({"x", std::move(text), kind});
    const CompileResult result = compile(request);
    if (!result.program) return diag::render_all(result.sources, result.diagnostics);
    const plan::ProbeDescription& p = result.program->clauses.front().probes.front();
    return p.provider + ":" + p.module + ":" + p.function + ":" + p.name + " #" +
           std::to_string(p.id);
  };
  EXPECT_EQ(probe(InputKind::kName, "pid1:libc.so.6:malloc:entry"),
            "pid1:libc.so.6:malloc:entry #0");
  EXPECT_EQ(probe(InputKind::kName, "malloc:entry"), "::malloc:entry #0");
  EXPECT_EQ(probe(InputKind::kProvider, "pid1"), "pid1::: #0");
  EXPECT_EQ(probe(InputKind::kModule, "pid1:libc.so.6"), "pid1:libc.so.6:: #0");
  EXPECT_EQ(probe(InputKind::kFunction, "libc.so.6:malloc"), ":libc.so.6:malloc: #0");
  EXPECT_EQ(probe(InputKind::kId, "3"), "::: #3");
}

TEST(Compile, MacrosComeFromTheRequest) {
  CompileRequest request;
  request.sources.push_back(
      {"x", "BEGIN { trace($1); trace($$2); trace($pid); trace($target); }", InputKind::kName});
  request.macros.arguments = {"12", "word"};
  request.macros.pid = 99;
  CompileResult result = compile(request);
  EXPECT_FALSE(result.program);
  ASSERT_EQ(result.diagnostics.sorted().size(), 1u);
  EXPECT_EQ(result.diagnostics.sorted().front().tag, "MACRO_UNDEF");
  request.macros.target = 5;
  result = compile(request);
  ASSERT_TRUE(result.program) << diag::render_all(result.sources, result.diagnostics);
  EXPECT_EQ(result.program->strings, std::vector<std::string>{"word"});
  std::vector<std::int64_t> constants;
  for (const plan::Instruction& i : result.program->clauses.front().code) {
    if (i.op == plan::Op::kConst) constants.push_back(i.immediate);
  }
  EXPECT_EQ(constants, (std::vector<std::int64_t>{12, 99, 5}));
}

TEST(Compile, PragmasSetOptions) {
  CompileRequest request;
  plan::Options options;
  ASSERT_TRUE(options.set("bufsize", "1m"));
  request.options = &options;
  request.sources.push_back({"x.d",
                             "#pragma D option quiet\n#pragma D option strsize=40\nBEGIN { s = "
                             "execname; trace(sizeof (s)); }\n",
                             InputKind::kScript});
  const CompileResult result = compile(request);
  ASSERT_TRUE(result.program) << diag::render_all(result.sources, result.diagnostics);
  EXPECT_TRUE(result.options.flag("quiet"));
  EXPECT_EQ(result.options.number("bufsize"), 1 << 20);
  // One more than the option says: the NUL.
  EXPECT_EQ(result.program->strsize, 41u);
  EXPECT_EQ(result.program->variables.front().type.size, 41u);
  EXPECT_EQ(result.program->clauses.front().code[3].immediate, 40);
}

TEST(Compile, WhatCannotRunYetIsNamed) {
  const auto message = [](std::string text) {
    CompileRequest request;
    request.sources.push_back({"x", std::move(text), InputKind::kName});
    const CompileResult result = compile(request);
    EXPECT_FALSE(result.program);
    const auto sorted = result.diagnostics.sorted();
    EXPECT_EQ(sorted.size(), 1u);
    return sorted.empty() ? std::string() : "[" + sorted.front().tag + "] " + sorted.front().text;
  };
  EXPECT_EQ(message("BEGIN { ustack(); }"), "[UNKNOWN] ustack() is not offered yet");
  EXPECT_EQ(message("BEGIN { @[ustack()] = count(); }"),
            "[UNKNOWN] ustack() as a key is not offered yet");
  EXPECT_EQ(message("BEGIN { trace(stackdepth); }"), "[UNKNOWN] stackdepth is not offered yet");
  EXPECT_EQ(message("BEGIN { panic(); }"), "[UNKNOWN] panic() is not offered yet");
  EXPECT_EQ(message("BEGIN { *(int *)arg0 = 1; }"),
            "[OP_WRITE] = cannot change this: only variables of the program can be");
}

TEST(Compile, MemoryIsWritten) {
  EXPECT_EQ(plan_of(R"d(int *p; BEGIN { *p = 1; p[arg0] += 2; })d"), R"d(global p: pointer at 0
sizes: globals 8, self 0, this 0, direct 0
clause 0 line 1: :::BEGIN
    0: r0 = 1
    1: r1 = p
    2: store32 [r1] = r0
    3: r2 = p
    4: r3 = arg0
    5: r4 = 4
    6: r5 = mul r3 r4
    7: r6 = add r2 r5
    8: r7 = sload32 [r6]
    9: r8 = 2
   10: r9 = add r7 r8
   11: r10 = sext32 r9
   12: store32 [r6] = r10
   13: end
)d");
}

// A part of an element: the element is changed as a whole. Of an array, indices are checked.
TEST(Compile, PartsOfElementsAndArrays) {
  EXPECT_EQ(plan_of("struct s { int a; int b[4]; }; struct s x[int];"
                    "BEGIN { x[7].b[arg0] = 1; }"),
            R"d(global x[int32]: bytes20 at 0, 16384 cells of 48
sizes: globals 786432, self 0, this 0, direct 0
clause 0 line 1: :::BEGIN
  scratch 40
    0: r0 = 1
    1: r1 = 7
    2: r2 = x[int32 r1]  ; scratch 0
    3: r3 = 4
    4: r4 = add r2 r3
    5: r5 = arg0
    6: check r5 < 4
    7: r6 = 4
    8: r7 = mul r5 r6
    9: r8 = add r4 r7
   10: store32 [r8] = r0
   11: x[int32 r1] = r2  ; scratch 32
   12: end
)d");
}

// Inlines that use each other twice double the code each time.
TEST(Compile, ExpansionIsBounded) {
  std::string text = "inline int i0 = arg0;\n";
  for (int i = 1; i < 40; ++i) {
    const std::string before = "i" + std::to_string(i - 1);
    text += "inline int i" + std::to_string(i) + " = " + before + " + " + before + ";\n";
  }
  text += "BEGIN { trace(i39); }";
  CompileRequest request;
  request.sources.push_back({"x", text, InputKind::kScript});
  const CompileResult result = compile(request);
  EXPECT_FALSE(result.program);
  EXPECT_TRUE(result.diagnostics.has_errors());
}

TEST(Compile, ClassicRegionsAreNamed) {
  CompileRequest request;
  request.sources.push_back({"x", "BEGIN /nope/ { trace(nada); }", InputKind::kName});
  const auto sorted = compile(request).diagnostics.sorted();
  ASSERT_EQ(sorted.size(), 2u);
  EXPECT_EQ(sorted[0].region, "predicate");
  EXPECT_EQ(sorted[1].region, "action list");
}

}  // namespace
}  // namespace trapline::dlang
