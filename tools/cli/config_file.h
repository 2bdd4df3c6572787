// SPDX-License-Identifier: Apache-2.0
// A file of options, in YAML or JSON, by the names that the command line has:
//
//   model: /models/qwen3-next
//   host: 0.0.0.0
//   port: 8000
//   metrics: false
//   served-model-name: [qwen3-next, default]
//   preferred-sampling-params: {temperature: 0.6}
//
// Threading: free functions without state.
#pragma once

#include <string>
#include <vector>

#include <heddle/status.h>

namespace CLI {  // NOLINT(readability-identifier-naming): the name is the parser's
class App;
}  // namespace CLI

namespace heddle::tools {

// One option of the file. Lists are joined by commas, maps are written as JSON.
struct FileSetting {
  std::string name;  // "served-model-name"; '_' is read as '-'
  std::string value;
  int line = 0;         // line number, from 1
  bool tuning = false;  // under `tuning:`
};

// A command line with the settings of a file among its words.
struct ArgumentsWithFile {
  std::vector<std::string> words;
  std::string path;                    // path of the file; empty: none was given
  std::vector<FileSetting> from_file;  // the settings of the file that were added to `words`
};

// Error: kNotFound where there is no such file; kInvalidArgument, naming the line, where it is
// neither YAML nor JSON, a name begins with a dash, an option has no value, or `tuning` holds no
// settings by name.
[[nodiscard]] Result<std::vector<FileSetting>> read_config_file(const std::string& path);

// `arguments` are those behind the program's name. Where the subcommand takes --config and they
// have one, the settings of its file are added as options, but for those that the arguments give
// themselves, by whatever spelling: the command line wins. Error: as above, and for an option below
// `tuning:` that is no key of it (Options::kTuning).
[[nodiscard]] Result<ArgumentsWithFile> with_config_file(const CLI::App& root,
                                                         std::vector<std::string> arguments);

// "serve.yaml, line 3: " where `message` is about an option that the file set; "" otherwise.
[[nodiscard]] std::string place_in_file(const ArgumentsWithFile& arguments,
                                        const std::string& message);

}  // namespace heddle::tools
