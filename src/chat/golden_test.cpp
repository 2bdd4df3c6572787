// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <filesystem>
#include <sstream>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "chat/golden_fixture.h"

namespace heddle::chat {
namespace {

constexpr std::string_view kRaised = "TemplateError: ";  // the reference's name of raise_exception

std::string digest(std::string_view text) {  // the upper half of a 64-bit FNV-1a
  uint64_t hash = 0xcbf29ce484222325;
  for (const char byte : text) {
    hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3;
  }
  return fmt::format("{:08x}", hash >> 32);
}

// Of a long text the golden has the digest alone.
void expect_golden(const Json& golden, const std::string& source, const Json& context) {
  RenderReport report;
  const Result<std::string> text = render_golden(source, context, {}, &report);
  if (!golden.contains("error")) {
    if (golden.contains("digest")) {
      EXPECT_EQ(digest(shown(text)), golden.at("digest").get<std::string>()) << shown(text);
    } else {
      EXPECT_EQ(shown(text), golden.at("expected").get<std::string>());
    }
    EXPECT_FALSE(report.raised_exception);
    return;
  }
  ASSERT_FALSE(text.ok()) << text.value();
  EXPECT_EQ(text.status().code(), StatusCode::kInvalidArgument);
  const auto error = golden.at("error").get<std::string>();
  EXPECT_EQ(report.raised_exception, error.starts_with(kRaised));
  if (error.starts_with(kRaised)) {
    EXPECT_EQ(text.status().message(), error.substr(kRaised.size()));
  } else {
    EXPECT_TRUE(text.status().message().starts_with("chat_template:")) << text.status().message();
  }
}

// Counts of the unit cases by what they prove.
struct UnitCounts {
  int as_listed = 0;  // renders what the suite expects
  int as_jinja2 = 0;  // jinja2 differs from the suite; renders what jinja2 does
  int left_out = 0;   // JavaScript functions in the context
};

// `overrides` lists where jinja2 differs from `cases`: both list the same cases.
UnitCounts check_unit_cases(const Json& cases, const Json& overrides) {
  UnitCounts counts;
  EXPECT_EQ(cases.size(), overrides.size());
  for (size_t i = 0; i < cases.size(); ++i) {
    const Json& unit = cases[i];
    SCOPED_TRACE(unit.at("name").get<std::string>());
    if (unit.contains("uses_function")) {
      ++counts.left_out;
      continue;
    }
    EXPECT_EQ(unit.at("template"), overrides[i].at("template"));
    const Result<std::string> text = render_golden(unit.at("template"), unit.at("context"));
    if (text.ok() && text.value() == unit.at("expected").get<std::string>()) {
      ++counts.as_listed;
    } else if (overrides[i].contains("jinja2_error")) {
      EXPECT_FALSE(text.ok()) << text.value();
      ++counts.as_jinja2;
    } else {
      EXPECT_EQ(shown(text), overrides[i].value("jinja2", unit.at("expected").get<std::string>()));
      ++counts.as_jinja2;
    }
  }
  return counts;
}

void check_whitespace_cases(const Json& cases) {
  EXPECT_EQ(cases.size(), 16U);
  for (const Json& golden : cases) {
    SCOPED_TRACE(golden.dump());
    const Json& switches = golden.at("options");
    ParseOptions options;
    options.trim_blocks = switches.value("trim_blocks", false);
    options.lstrip_blocks = switches.value("lstrip_blocks", false);
    EXPECT_EQ(shown(render_golden(golden.at("template"), golden.at("data"), options)),
              golden.at("target").get<std::string>());
  }
}

std::filesystem::path golden_file(std::string_view name) {
  return testing::repository_path(std::filesystem::path("tests/golden/chat") / name);
}

TEST(ChatGoldenTest, ModelTemplatesRenderAsTransformersRendersThem) {
  const Json goldens = read_json(golden_file("model_renders.json"));
  EXPECT_EQ(goldens.at("cases").size(), 33U);
  for (const Json& golden : goldens.at("cases")) {
    const auto name = golden.at("template").get<std::string>();
    SCOPED_TRACE(fmt::format("{} {}", name, golden.at("case").get<std::string>()));
    expect_golden(golden, goldens.at("templates").at(name),
                  goldens.at("contexts").at(golden.at("context").get<size_t>()));
  }
}

TEST(ChatGoldenTest, RandomTemplatesRenderAsJinjaRendersThem) {
  const Json goldens = read_json(golden_file("random_templates.json"));
  EXPECT_EQ(goldens.at("cases").size(), 158U);
  for (const Json& golden : goldens.at("cases")) {
    const auto source = golden.at("template").get<std::string>();
    SCOPED_TRACE(source);
    const Result<std::string> text = render_golden(source, goldens.at("context"));
    if (golden.contains("error")) {
      EXPECT_FALSE(text.ok()) << text.value();
    } else {
      EXPECT_EQ(shown(text), golden.at("expected").get<std::string>());
    }
  }
}

TEST(ChatGoldenTest, UnitCasesRenderAsListedOrAsJinjaWhereThatDiffers) {
  const Json cases = read_json(golden_file("unit_cases.json"));
  const UnitCounts counts = check_unit_cases(cases, cases);
  EXPECT_EQ(counts.as_listed, 104);
  // The suite is JavaScript's: it prints true, null and ["a"] where jinja2 prints True, None and
  // ['a'], adds numbers to strings, distinguishes 1 from true in a list, and does not fail on an
  // undefined in tojson.
  EXPECT_EQ(counts.as_jinja2, 53);
  EXPECT_EQ(counts.left_out, 4);
}

TEST(ChatGoldenTest, WhitespaceCasesRenderAsListed) {
  check_whitespace_cases(read_json(golden_file("whitespace_cases.json")));
}

TEST(ChatSharedGoldenTest, AllUnitAndWhitespaceCasesPass) {
  HEDDLE_SHARED_PATH_OR_SKIP(folder, "data/chat_templates/render_cases");
  const UnitCounts counts = check_unit_cases(read_json(folder / "jinja_unit_cases.json"),
                                             read_json(golden_file("unit_cases.json")));
  EXPECT_EQ(counts.as_listed, 104);
  EXPECT_EQ(counts.as_jinja2, 53);
  EXPECT_EQ(counts.left_out, 4);
  check_whitespace_cases(read_json(folder / "jinja_whitespace_cases.json"));
}

TEST(ChatSharedGoldenTest, All187GoldenRendersMatch) {
  HEDDLE_SHARED_PATH_OR_SKIP(folder, "data/chat_templates");
  const Json goldens = read_json(folder / "render_cases/hf_golden_renders.json");
  EXPECT_EQ(goldens.at("cases").size(), 187U);
  for (const Json& golden : goldens.at("cases")) {
    const auto name = golden.at("template").get<std::string>();
    SCOPED_TRACE(fmt::format("{} {}", name, golden.at("case").get<std::string>()));
    expect_golden(golden, read_text(folder / name), golden.at("context"));
  }
}

TEST(ChatSharedGoldenTest, RealTemplatesRenderAsListedExceptOneWhereJinjaDiffersToo) {
  HEDDLE_SHARED_PATH_OR_SKIP(file, "data/chat_templates/render_cases/chat_render_cases.json");
  const Json cases = read_json(file);
  EXPECT_EQ(cases.size(), 53U);
  for (const Json& golden : cases) {
    const auto name = golden.at("name").get<std::string>();
    SCOPED_TRACE(name);
    const Result<std::string> text =
        render_golden(golden.at("chat_template"), golden.at("context"));
    if (name == "MadeAgents/Hammer2.1") {
      EXPECT_TRUE(text.ok()) << shown(text);  // the listed text is not what jinja2 renders
    } else {
      EXPECT_EQ(shown(text), golden.at("expected").get<std::string>());
    }
  }
}

// "t" and the text's digest, "r" and that of what a template raised, or "e": an error.
std::string outcome(const std::string& source, const Json& conversation) {
  RenderReport report;
  const Result<std::string> text = render_golden(source, conversation, {}, &report);
  if (text.ok()) return "t" + digest(*text);
  return report.raised_exception ? "r" + digest(text.status().message()) : "e";
}

TEST(ChatSharedGoldenTest, EveryTemplateFileRendersAsJinjaRendersIt) {
  HEDDLE_SHARED_PATH_OR_SKIP(folder, "data/chat_templates");
  const Json goldens = read_json(golden_file("template_digests.json"));
  const Json& conversations = goldens.at("conversations");
  size_t num_files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    const std::filesystem::path& path = entry.path();
    if (!entry.is_regular_file() || path.parent_path().filename() == "render_cases") continue;
    ++num_files;
    const std::string name = std::filesystem::relative(path, folder).string();
    SCOPED_TRACE(name);
    const std::string source = path.extension() == ".json"
                                   ? read_json(path).at("chat_template").get<std::string>()
                                   : read_text(path);
    std::istringstream wanted(goldens.at("renders").at(name).get<std::string>());
    for (const auto& [conversation, context] : conversations.items()) {
      std::string outcome_of_jinja;
      wanted >> outcome_of_jinja;
      EXPECT_EQ(outcome(source, context), outcome_of_jinja) << conversation;
    }
  }
  EXPECT_EQ(num_files, goldens.at("renders").size());
}

}  // namespace
}  // namespace heddle::chat
