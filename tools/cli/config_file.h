// SPDX-License-Identifier: Apache-2.0
// Files of options in YAML or JSON, by the names of the command line:
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

// One option in the file. Lists are joined by commas, maps are written as JSON.
struct FileSetting {
  std::string name;  // name, as "served-model-name"; '_' is read as '-'
  std::string value;
  int line = 0;         // line number in the file, from 1
  bool tuning = false;  // the option is below the key `tuning:`
};

// A command line to which the settings of a file were added.
struct ArgumentsWithFile {
  std::vector<std::string> words;
  std::string path;                    // path of the file; empty: the command line has none
  std::vector<FileSetting> from_file;  // the settings of the file that were added to `words`
};

// Reads a file. Error: kNotFound if there is no such file; kInvalidArgument, naming the line, if it
// is neither YAML nor JSON, a name begins with a dash, an option has no value, or `tuning` does not
// contain named settings.
[[nodiscard]] Result<std::vector<FileSetting>> read_config_file(const std::string& path);

// Adds the settings of a file as options. `arguments` are the words after the program's name.
// Nothing is added unless the subcommand has an option --config and the arguments give it. Options
// that the arguments contain, in any spelling, override those in the file. Error: those of
// read_config_file(), and an option below `tuning:` that does not belong there (Options::kTuning).
[[nodiscard]] Result<ArgumentsWithFile> with_config_file(const CLI::App& root,
                                                         std::vector<std::string> arguments);

// "serve.yaml, line 3: " if `message` is about an option that the file set; "" otherwise.
[[nodiscard]] std::string place_in_file(const ArgumentsWithFile& arguments,
                                        const std::string& message);

}  // namespace heddle::tools
