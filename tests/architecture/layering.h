// SPDX-License-Identifier: Apache-2.0
// The arrows of src/README.md, and a checker that holds every #include to them.
//
// The README has one block
//
//   ```layers
//   tools > server > engine chat > core
//   ```
//
// A folder may include itself and whatever stands after its arrow; folders between two arrows leave
// each other alone. Line breaks in the block mean nothing.
//
// A folder of src/ whose README.md has such a block is divided into rooms, its own folders ("http",
// "api/openai"), which are held to it likewise, but for tests. "." in the block stands for the
// files beside the rooms; without it they stand below all rooms.
//
// Threading: values; single-threaded test code. Reads files, never writes.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <heddle/status.h>

namespace heddle::architecture {

// The whole file; empty where there is none.
std::string read_text(const std::filesystem::path& path);

class Layers {
 public:
  // Takes the block out of the README's text. Error: kInvalidArgument when there is no block, an
  // arrow leads nowhere or a folder stands twice.
  static Result<Layers> parse(std::string_view readme);

  [[nodiscard]] bool knows(std::string_view folder) const { return level_of(folder).has_value(); }

  // Whether a file of `from` may include a header of `to`. Both must be known.
  [[nodiscard]] bool allows(std::string_view from, std::string_view to) const;

  // The folders, from the top level down.
  [[nodiscard]] const std::vector<std::vector<std::string>>& levels() const { return levels_; }

 private:
  [[nodiscard]] std::optional<size_t> level_of(std::string_view folder) const;

  std::vector<std::vector<std::string>> levels_;
};

// One #include "path" of a source file.
struct Include {
  std::string path;  // as written: "cache/page_pool.h"
  int line = 0;      // from 1
};

// The quoted includes of a source text; those in // and /* */ comments do not count.
std::vector<Include> quoted_includes(std::string_view source);

// Whether its name says that it is a test, a benchmark or a fuzzer.
bool is_test_source(const std::filesystem::path& path);

// Every source file (.h .cuh .cpp .cu) below `directory`, in order of path.
std::vector<std::filesystem::path> source_files(const std::filesystem::path& directory);

// All that is wrong with a repository, one sentence each, led by "file:line: ". Checks the includes
// of src/ and tools/, those between rooms too, that include/heddle/ takes nothing from src/, and
// that each folder of src/ that has files stands among the arrows and in the table of src/README.md
// and has a README.md of its own.
std::vector<std::string> layering_violations(const std::filesystem::path& repository);

}  // namespace heddle::architecture
