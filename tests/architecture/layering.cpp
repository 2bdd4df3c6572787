// SPDX-License-Identifier: Apache-2.0
#include "architecture/layering.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>

#include <fmt/format.h>

namespace heddle::architecture {

namespace fs = std::filesystem;

std::string read_text(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

bool is_test_source(const fs::path& path) {
  const std::string stem = path.stem().string();
  return stem.ends_with("_test") || stem.ends_with("_fixture") || stem.ends_with("_bench") ||
         stem.ends_with("_fuzz");
}

namespace {

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

struct SourceFile {
  fs::path path;
  std::vector<Include> includes;
};

// Tests, benchmarks and fuzzers may also use tests/support, and so may headers that only
// they include.
class TestOnly {
 public:
  explicit TestOnly(const std::vector<SourceFile>& files) {
    for (const SourceFile& file : files) {
      for (const Include& include : file.includes) {
        (is_test_source(file.path) ? by_tests_ : by_others_).insert(include.path);
      }
    }
  }

  // `header` as an #include would spell it.
  [[nodiscard]] bool contains(const fs::path& path, const std::string& header) const {
    return is_test_source(path) || (by_tests_.contains(header) && !by_others_.contains(header));
  }

 private:
  std::set<std::string> by_tests_;
  std::set<std::string> by_others_;
};

std::vector<SourceFile> read_sources(const fs::path& directory) {
  std::vector<SourceFile> files;
  for (const fs::path& path : source_files(directory)) {
    files.push_back({.path = path, .includes = quoted_includes(read_text(path))});
  }
  return files;
}

std::string folder_of(std::string_view include) {
  return std::string(include.substr(0, include.find('/')));
}

// The fault of one include of a file of `folder`, or nothing.
std::optional<std::string> judge(const Layers& layers, const std::string& folder,
                                 const std::string& include, bool is_test) {
  if (include.find('/') == std::string::npos) {
    return fmt::format("includes \"{}\" without its folder: write \"{}/...\"", include, folder);
  }
  const std::string target = folder_of(include);
  if (target == "support" && is_test) return std::nullopt;
  if (!layers.knows(target)) {
    return fmt::format("includes \"{}\", but {}/ is not among the arrows of src/README.md", include,
                       target);
  }
  if (!layers.allows(folder, target)) {
    return fmt::format(
        "includes \"{}\", but {} does not stand after the arrow of {} in src/README.md", include,
        target, folder);
  }
  return std::nullopt;
}

void check_folder(const Layers& layers, const fs::path& repository, const fs::path& directory,
                  const std::string& folder, const TestOnly& test_only,
                  std::vector<std::string>* violations) {
  for (const SourceFile& file : read_sources(directory)) {
    const std::string header = fs::relative(file.path, directory.parent_path()).string();
    for (const Include& include : file.includes) {
      if (auto wrong = judge(layers, folder, include.path, test_only.contains(file.path, header))) {
        violations->push_back(fmt::format("{}:{}: {}", fs::relative(file.path, repository).string(),
                                          include.line, *wrong));
      }
    }
  }
}

// The room of a path as an #include spells it: the longest of its folders below `folder` that is
// known as a room, else the first one. "." beside the rooms; empty outside `folder`.
std::string room_of(const Layers& rooms, std::string_view path, std::string_view folder) {
  if (!path.starts_with(fmt::format("{}/", folder))) return {};
  const std::string_view inside = path.substr(folder.size() + 1);
  for (size_t end = inside.rfind('/'); end != std::string_view::npos && end > 0;
       end = inside.rfind('/', end - 1)) {
    if (rooms.knows(inside.substr(0, end))) return std::string(inside.substr(0, end));
  }
  const size_t first = inside.find('/');
  return first == std::string_view::npos ? "." : std::string(inside.substr(0, first));
}

// Where the block does not place the files beside the rooms, these stand below all rooms.
bool may_include(const Layers& rooms, std::string_view from, std::string_view to) {
  if (from == to || (to == "." && !rooms.knows("."))) return true;
  return rooms.knows(from) && rooms.knows(to) && rooms.allows(from, to);
}

void check_rooms(const fs::path& repository, const fs::path& directory, const std::string& folder,
                 std::vector<std::string>* violations) {
  const std::string readme_path = fs::relative(directory / "README.md", repository).string();
  const std::string readme = read_text(directory / "README.md");
  if (readme.find("```layers") == std::string::npos) return;
  const Result<Layers> rooms = Layers::parse(readme);
  if (!rooms.ok()) {
    violations->push_back(fmt::format("{}:1: {}", readme_path, rooms.status().message()));
    return;
  }
  for (const SourceFile& file : read_sources(directory)) {
    const std::string path = fs::relative(file.path, directory.parent_path()).string();
    const std::string from = room_of(*rooms, path, folder);
    if (from != "." && !rooms->knows(from)) {
      violations->push_back(fmt::format("{}:1: {}/ is not among the rooms of {}",
                                        fs::relative(file.path, repository).string(), from,
                                        readme_path));
      continue;
    }
    if (is_test_source(file.path)) continue;
    for (const Include& include : file.includes) {
      const std::string to = room_of(*rooms, include.path, folder);
      if (to.empty() || may_include(*rooms, from, to)) continue;
      violations->push_back(
          fmt::format("{}:{}: includes \"{}\", but {} does not stand after the arrow of {} in {}",
                      fs::relative(file.path, repository).string(), include.line, include.path, to,
                      from == "." ? "the files beside the rooms" : from, readme_path));
    }
  }
}

void check_public_headers(const fs::path& repository, std::vector<std::string>* violations) {
  for (const fs::path& path : source_files(repository / "include")) {
    for (const Include& include : quoted_includes(read_text(path))) {
      violations->push_back(
          fmt::format("{}:{}: includes \"{}\", but a public header includes nothing of src/",
                      fs::relative(path, repository).string(), include.line, include.path));
    }
  }
}

}  // namespace

Result<Layers> Layers::parse(std::string_view readme) {
  constexpr std::string_view kFence = "```layers";
  const size_t begin = readme.find(kFence);
  if (begin == std::string_view::npos) return invalid_argument("no ```layers block");
  const size_t end = readme.find("```", begin + kFence.size());
  if (end == std::string_view::npos) return invalid_argument("the ```layers block has no end");

  Layers layers;
  layers.levels_.emplace_back();
  std::istringstream words(
      std::string(readme.substr(begin + kFence.size(), end - begin - kFence.size())));
  for (std::string word; words >> word;) {
    if (word == ">") {
      if (layers.levels_.back().empty()) return invalid_argument("an arrow with nothing before it");
      layers.levels_.emplace_back();
    } else if (layers.knows(word)) {
      return invalid_argument(fmt::format("'{}' stands twice in the layers", word));
    } else {
      layers.levels_.back().push_back(word);
    }
  }
  if (layers.levels_.back().empty()) return invalid_argument("an arrow with nothing after it");
  return layers;
}

std::optional<size_t> Layers::level_of(std::string_view folder) const {
  for (size_t level = 0; level < levels_.size(); ++level) {
    if (std::ranges::find(levels_[level], folder) != levels_[level].end()) return level;
  }
  return std::nullopt;
}

bool Layers::allows(std::string_view from, std::string_view to) const {
  return from == to || level_of(from) < level_of(to);
}

std::vector<Include> quoted_includes(std::string_view source) {
  std::vector<Include> includes;
  bool in_comment = false;
  int line_number = 0;
  while (!source.empty()) {
    const size_t end = source.find('\n');
    std::string_view line = trimmed(source.substr(0, end));
    source.remove_prefix(end == std::string_view::npos ? source.size() : end + 1);
    ++line_number;
    if (in_comment) {
      in_comment = line.find("*/") == std::string_view::npos;
      continue;
    }
    if (line.starts_with("/*") && line.find("*/") == std::string_view::npos) in_comment = true;
    if (!line.starts_with('#')) continue;
    line = trimmed(line.substr(1));
    if (!line.starts_with("include")) continue;
    line = trimmed(line.substr(std::string_view("include").size()));
    const size_t closing = line.find('"', 1);
    if (!line.starts_with('"') || closing == std::string_view::npos) continue;
    includes.push_back({.path = std::string(line.substr(1, closing - 1)), .line = line_number});
  }
  return includes;
}

std::vector<fs::path> source_files(const fs::path& directory) {
  std::vector<fs::path> paths;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    const fs::path extension = entry->path().extension();
    if (extension == ".h" || extension == ".cuh" || extension == ".cpp" || extension == ".cu") {
      paths.push_back(entry->path());
    }
  }
  std::ranges::sort(paths);
  return paths;
}

std::vector<std::string> layering_violations(const fs::path& repository) {
  const std::string readme = read_text(repository / "src" / "README.md");
  const Result<Layers> layers = Layers::parse(readme);
  if (!layers.ok()) return {"src/README.md:1: " + layers.status().message()};

  std::vector<std::string> violations;
  const TestOnly test_only(read_sources(repository / "src"));
  std::error_code error;
  for (fs::directory_iterator entry(repository / "src", error), end; !error && entry != end;
       entry.increment(error)) {
    if (!entry->is_directory() || source_files(entry->path()).empty()) continue;
    const std::string folder = entry->path().filename().string();
    if (!layers->knows(folder)) {
      violations.push_back(fmt::format("src/README.md:1: {}/ is not among the arrows", folder));
      continue;
    }
    if (readme.find(fmt::format("\n| {}/ |", folder)) == std::string::npos) {
      violations.push_back(fmt::format("src/README.md:1: {}/ is not in the table", folder));
    }
    if (!fs::exists(entry->path() / "README.md")) {
      violations.push_back(fmt::format("src/{}/README.md:1: is missing", folder));
    }
    check_folder(*layers, repository, entry->path(), folder, test_only, &violations);
    check_rooms(repository, entry->path(), folder, &violations);
  }
  if (layers->knows("tools")) {
    check_folder(*layers, repository, repository / "tools", "tools", test_only, &violations);
    check_rooms(repository, repository / "tools", "tools", &violations);
  }
  check_public_headers(repository, &violations);
  std::ranges::sort(violations);
  return violations;
}

}  // namespace heddle::architecture
