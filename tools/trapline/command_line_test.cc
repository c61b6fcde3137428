#include "command_line.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "provider_files.h"

namespace trapline::tool {
namespace {

ParsedCommandLine parse(std::vector<std::string> words) {
  words.insert(words.begin(), "trapline");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  return parse_command_line("trapline", static_cast<int>(words.size()), argv.data());
}

TEST(CommandLine, TakesProgramsInTheirOrder) {
  const auto parsed = parse({"-n", "BEGIN", "-s", "x.d", "-P", "profile"});
  ASSERT_FALSE(parsed.error);
  ASSERT_EQ(parsed.command.sources.size(), 3u);
  EXPECT_EQ(parsed.command.sources[0].flag, SourceFlag::kName);
  EXPECT_EQ(parsed.command.sources[1].text, "x.d");
  EXPECT_EQ(parsed.command.sources[2].flag, SourceFlag::kProvider);
}

TEST(CommandLine, OptionsKeepTheirValues) {
  const auto parsed =
      parse({"-q", "-x", "strsize=64", "-xerrtags", "-b", "1m", "-D", "A=1", "-n", "BEGIN"});
  ASSERT_FALSE(parsed.error);
  ASSERT_EQ(parsed.command.options.size(), 4u);
  EXPECT_EQ(parsed.command.options[0].first, "quiet");
  EXPECT_EQ(parsed.command.options[1].second, "64");
  EXPECT_EQ(parsed.command.options[2].second, std::nullopt);
  EXPECT_EQ(parsed.command.options[3].first, "bufsize");
  EXPECT_EQ(parsed.command.cpp_arguments, std::vector<std::string>{"-DA=1"});
}

TEST(CommandLine, ArgumentsMayStandAnywhere) {
  const auto parsed = parse({"-n", "BEGIN", "one", "-q", "two"});
  ASSERT_FALSE(parsed.error);
  EXPECT_EQ(parsed.command.arguments, (std::vector<std::string>{"one", "two"}));
}

TEST(CommandLine, MistakesAreUsageErrors) {
  EXPECT_EQ(parse({}).error->exit_status, kExitUsage);
  EXPECT_EQ(parse({"-?"}).error->exit_status, kExitUsage);
  EXPECT_EQ(parse({"-n"}).error->exit_status, kExitUsage);
  EXPECT_EQ(parse({"-l", "-V"}).error->exit_status, kExitUsage);
  EXPECT_EQ(parse({"-32"}).error->exit_status, kExitUsage);
  EXPECT_EQ(parse({"-p", "12x"}).error->exit_status, kExitError);
  EXPECT_FALSE(parse({"-64", "-n", "BEGIN"}).error);
}

TEST(CommandLine, HeadersAndObjects) {
  const auto parsed = parse({"-G", "-s", "dir/my.prov.d", "a.o", "b.o", "-o", "p.o"});
  ASSERT_FALSE(parsed.error);
  EXPECT_EQ(parsed.command.mode, Mode::kObject);
  EXPECT_EQ(parsed.command.arguments, (std::vector<std::string>{"a.o", "b.o"}));
  EXPECT_EQ(output_name(parsed.command.sources[0], 'h'), "my.prov.h");
  EXPECT_EQ(output_name({SourceFlag::kScript, "/dev/stdin"}, 'o'), "");
  EXPECT_EQ(output_name({SourceFlag::kName, "x.d"}, 'o'), "");
  EXPECT_EQ(parse({"-h", "-s", "x.d"}).command.mode, Mode::kHeader);
  EXPECT_EQ(parse({"-h", "-l", "-s", "x.d"}).error->exit_status, kExitUsage);
  EXPECT_EQ(parse({"-h", "-s", "x.d", "-c", "true"}).error->exit_status, kExitUsage);
}

}  // namespace
}  // namespace trapline::tool
