// SPDX-License-Identifier: Apache-2.0
#include "architecture/layering.h"

#include <filesystem>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "architecture/tree_fixture.h"
#include "support/test_data.h"

namespace heddle::architecture {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(Layering, HoldsInThisRepository) {
  EXPECT_THAT(layering_violations(heddle::testing::repository_path("")), IsEmpty());
}

TEST(Layering, EverySourceFileNamesItsLicenceAndEveryHeaderIsIncludedOnce) {
  for (const char* folder : {"include", "src", "tools", "tests", "bench"}) {
    for (const fs::path& path : source_files(heddle::testing::repository_path(folder))) {
      std::ifstream file(path);
      std::string first, text;
      std::getline(file, first);
      text.assign(std::istreambuf_iterator<char>(file), {});
      EXPECT_EQ(first, "// SPDX-License-Identifier: Apache-2.0") << path;
      if (path.extension() == ".h" || path.extension() == ".cuh") {
        // Highway includes its -inl.h files once per instruction set, under a guard of its own.
        const bool guarded = text.find("#pragma once") != std::string::npos ||
                             text.find("HWY_TARGET_TOGGLE") != std::string::npos;
        EXPECT_TRUE(guarded) << path << " has no #pragma once";
      }
    }
  }
}

class SyntheticTree : public TreeFixture {
 protected:
  void SetUp() override {
    TreeFixture::SetUp();
    write("src/README.md",
          "| folder | what |\n|---|---|\n| engine/ | loop |\n| chat/ | text |\n| core/ | base |\n"
          "```layers\ntools > engine chat\n      > core\n```\n");
    for (const char* folder : {"engine", "chat", "core"}) {
      write(fs::path("src") / folder / "README.md", "# A folder\n");
    }
  }

  [[nodiscard]] std::vector<std::string> violations() const { return layering_violations(root()); }
};

TEST_F(SyntheticTree, RoomsOfAFolderHoldToTheirOwnArrows) {
  write("src/engine/README.md", "# Rooms\n\n```layers\nload > step > program\n```\n");
  write("src/engine/runner.h", "#include \"core/log.h\"\n");
  write("src/engine/load/load.cpp",
        "#include \"engine/runner.h\"\n#include \"engine/step/step.h\"\n");
  write("src/engine/step/step.h", "#include \"engine/program/pass.h\"\n");
  write("src/engine/program/pass.h", "#include \"engine/program/rows.h\"\n");
  write("src/engine/program/rows.h", "\n");
  write("src/engine/program/pass_test.cpp", "#include \"engine/step/step.h\"\n");
  write("src/core/log.h", "#include <string>\n");
  EXPECT_THAT(violations(), IsEmpty());

  write("src/engine/program/rows.h", "\n#include \"engine/step/step.h\"\n");
  EXPECT_THAT(violations(),
              ElementsAre(HasSubstr("src/engine/program/rows.h:2: includes \"engine/step/step.h\", "
                                    "but step does not stand after the arrow of program")));
  write("src/engine/program/rows.h", "\n");
  write("src/engine/runner.h", "#include \"engine/step/step.h\"\n");
  EXPECT_THAT(violations(), ElementsAre(HasSubstr("the files beside the rooms")));
  write("src/engine/runner.h", "\n");
  write("src/engine/cellar/wine.h", "\n");
  EXPECT_THAT(violations(), ElementsAre(HasSubstr("cellar/ is not among the rooms")));
}

TEST_F(SyntheticTree, FilesBesideTheRoomsMayStandAboveThemAndRoomsMayLieDeeper) {
  write("src/engine/README.md", "```layers\n. > api/chat > api/plain > call\n```\n");
  write("src/engine/engine.h", "#include \"engine/api/chat/chat.h\"\n");
  write("src/engine/api/chat/chat.h", "#include \"engine/api/plain/plain.h\"\n");
  write("src/engine/api/plain/plain.h", "#include \"engine/call/inner/call.h\"\n");
  write("src/engine/call/inner/call.h", "\n");
  EXPECT_THAT(violations(), IsEmpty());

  write("src/engine/call/inner/call.h",
        "#include \"engine/engine.h\"\n#include \"engine/api/chat/chat.h\"\n");
  write("src/engine/api/plain/plain.h", "#include \"engine/api/chat/chat.h\"\n");
  write("src/engine/api/cellar/wine.h", "\n");
  EXPECT_THAT(violations(),
              ElementsAre(HasSubstr("api/cellar/wine.h:1: api/ is not among the rooms"),
                          HasSubstr("but api/chat does not stand after the arrow of api/plain"),
                          HasSubstr("but . does not stand after the arrow of call"),
                          HasSubstr("but api/chat does not stand after the arrow of call")));
}

TEST_F(SyntheticTree, AFolderMayIncludeItselfAndWhatStandsAfterItsArrow) {
  write("src/engine/engine.cpp", "#include \"engine/loop.h\"\n#include \"core/log.h\"\n");
  write("src/core/log.h", "#include <string>\n");
  write("tools/main.cpp", "#include \"tools/serve.h\"\n#include \"engine/engine.h\"\n");
  write("include/heddle/engine.h", "#include <heddle/status.h>\n");
  EXPECT_THAT(violations(), IsEmpty());
}

TEST_F(SyntheticTree, AnIncludeAgainstTheArrowIsReportedWithFileAndLine) {
  write("src/core/log.h", "#pragma once\n\n#  include \"engine/engine.h\"\n");
  EXPECT_THAT(violations(),
              ElementsAre("src/core/log.h:3: includes \"engine/engine.h\", but engine does "
                          "not stand after the arrow of core in src/README.md"));
}

TEST_F(SyntheticTree, FoldersBetweenTwoArrowsLeaveEachOtherAlone) {
  write("src/engine/deep/loop.cu", "#include \"chat/template.h\"\n");
  write("src/chat/template.cpp", "#include \"engine/engine.h\"\n");
  EXPECT_THAT(violations(), ElementsAre(HasSubstr("src/chat/template.cpp:1: includes"),
                                        HasSubstr("src/engine/deep/loop.cu:1: includes")));
}

TEST_F(SyntheticTree, UnknownFoldersAndHeadersWithoutAFolderAreReported) {
  write("src/core/log.cpp", "#include \"log.h\"\n#include \"utils/strings.h\"\n");
  EXPECT_THAT(violations(),
              ElementsAre(HasSubstr("log.cpp:1: includes \"log.h\" without its folder"),
                          HasSubstr("log.cpp:2: includes \"utils/strings.h\", but utils/")));
}

TEST_F(SyntheticTree, OnlyTestsAndTheirHeadersMayUseTheTestSupport) {
  write("src/core/log.cpp", "#include \"support/test_data.h\"\n");
  write("src/core/log_test.cpp", "#include \"support/test_data.h\"\n#include \"core/cases.h\"\n");
  write("src/core/cases.h", "#include \"support/test_data.h\"\n");
  EXPECT_THAT(violations(), ElementsAre(HasSubstr("src/core/log.cpp:1:")));
  write("src/core/text.cpp", "#include \"core/cases.h\"\n");
  EXPECT_THAT(violations(),
              ElementsAre(HasSubstr("src/core/cases.h:1:"), HasSubstr("src/core/log.cpp:1:")));
}

TEST_F(SyntheticTree, APublicHeaderTakesNothingFromTheSources) {
  write("include/heddle/engine.h", "#pragma once\n#include \"core/log.h\"\n");
  EXPECT_THAT(violations(), ElementsAre(HasSubstr("include/heddle/engine.h:2:")));
}

TEST_F(SyntheticTree, AFolderNeedsItsArrowItsRowAndItsReadme) {
  write("src/quant/int4.h", "#pragma once\n");
  EXPECT_THAT(violations(), ElementsAre("src/README.md:1: quant/ is not among the arrows"));
  write("src/README.md", "```layers\nquant > core\n```\n");
  EXPECT_THAT(violations(), ElementsAre("src/README.md:1: quant/ is not in the table",
                                        "src/quant/README.md:1: is missing"));
}

TEST(QuotedIncludes, IgnoresCommentsAndAngleBrackets) {
  const auto includes = quoted_includes(
      "// #include \"a/a.h\"\n/*\n#include \"b/b.h\"\n*/\n#include <c/c.h>\n  #include\t\"d/d.h\"  "
      "// why\n");
  ASSERT_EQ(includes.size(), 1u);
  EXPECT_EQ(includes[0].path, "d/d.h");
  EXPECT_EQ(includes[0].line, 6);
}

TEST(ParseLayers, SaysWhatIsWrongWithTheBlock) {
  EXPECT_THAT(Layers::parse("# no block").status().message(), HasSubstr("no ```layers block"));
  EXPECT_THAT(Layers::parse("```layers\na > b").status().message(), HasSubstr("no end"));
  EXPECT_THAT(Layers::parse("```layers\na > > b\n```").status().message(),
              HasSubstr("nothing before"));
  EXPECT_THAT(Layers::parse("```layers\na >\n```").status().message(), HasSubstr("nothing after"));
  EXPECT_THAT(Layers::parse("```layers\na > b a\n```").status().message(),
              HasSubstr("'a' stands twice"));
}

}  // namespace
}  // namespace heddle::architecture
