// SPDX-License-Identifier: Apache-2.0
// Options: what a subcommand takes on its command line, declared without the parser's header (which
// costs seconds in every file that includes it).
//
//   options.examples("heddle serve\nheddle serve models/heddle-tiny --port 8000");
//   options.positional("MODEL_DIR", &settings->model_dir, "folder of the model");
//   options.value("-p,--port", &settings->port, "port to listen on");
//   options.value("--threads", &settings->threads, ranges::kThreads, "compute threads");
//
// Names are spelled with '-'; '_' is accepted in their place. Spellings of other servers
// (familiar_options.h) are added by themselves. Targets keep their value when the option is not
// given, and their value is shown as the default; for a number or a choice, "auto" leaves it, too.
// They outlive the parse.
//
// Threading: thread-confined.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <heddle/status.h>

#include "tools/cli/value_range.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the name is the parser's
class App;
class Option;
}  // namespace CLI

namespace heddle::tools {

// An option as it was declared, for those who must know all of them: docs/options.md is held to
// this.
struct DeclaredOption {
  std::vector<std::string> names;  // "--port", "-p"; also those that turn a flag off
  std::string default_value;  // default as --help shows it; "on" or "off" for a flag; "" for none
  bool familiar = false;      // declared by Options::accept_familiar()
  bool tuning = false;        // declared below Options::kTuning
};

class Options {
 public:
  using Target = std::variant<std::string*, std::optional<std::string>*,
                              std::vector<std::string>*>;  // a list: the option may be repeated
  using NumberTarget =
      std::variant<int32_t*, int64_t*, uint64_t*, uint16_t*, double*, float*,
                   std::optional<int32_t>*, std::optional<int64_t>*, std::optional<uint64_t>*,
                   std::optional<double>*, std::optional<float>*>;

  explicit Options(CLI::App& app) : app_(app) {}

  // Shown before everything else by --help; one command a line.
  void examples(std::string_view lines);

  // Options declared from here on stand under this heading in --help. Below kTuning they are keys
  // of `tuning:` in a file of options (config_file.h), which few need and --help does not list; a
  // command line may have them by the same names.
  void heading(std::string_view title) { heading_ = title; }

  static constexpr std::string_view kTuning = "Tuning";

  // Declares a positional argument. An empty one, as "$UNSET" is, is an error.
  void positional(const char* name, std::string* target, const char* help, bool required = true);
  void positional(const char* name, std::vector<std::string>* target, const char* help,
                  bool required = true);  // one or more; not required: zero or more

  // A model's folder, or its name in the hub's cache, which becomes the folder there
  // (checkpoint/hub_cache.h). `name` without dashes is a positional.
  void model(const char* name, std::string* target, const char* help, bool required = true);

  // `names` is one spelling or several: "-p,--port".
  void value(const char* names, Target target, const char* help);

  // Declares an option with a number. A value outside `range` is an error that names option, value
  // and range.
  void value(const char* names, NumberTarget target, const ValueRange& range, const char* help);

  void value(const char* names, NumberTarget target, const char* help) {
    value(names, target, ranges::kAny, help);
  }

  // As value(), for a text that must not be empty.
  void text(const char* names, Target target, const char* help);

  // As value(), for one of the words given; "auto" keeps the default.
  void choice(const char* names, std::string* target, const std::vector<std::string>& words,
              const char* help) {
    choice(names, *target, words, [target](const std::string& word) { *target = word; }, help);
  }

  // As choice(), for an enum; `parse` turns a word into a value.
  template <typename Choice>
  void choice(const char* names, Choice* target, Result<Choice> (*parse)(std::string_view),
              const std::vector<std::string>& words, const char* help) {
    const auto store = [target, parse](const std::string& word) { *target = parse(word).value(); };
    choice(names, std::string(to_string(*target)), words, store, help);
  }

  // As value(), for a text that `store` parses. An error of `store` becomes the option's; fields
  // that it names are shown as options (option_names.h).
  void parsed(const char* names, std::string_view shown_default,
              std::function<Status(std::string_view)> store, const char* help);

  // A spelling that starts with '!' turns it off: "--feature,!--no-feature".
  void flag(const char* names, bool* target, const char* help);

  // Options that other servers have and that change nothing here, taken where they ask for what
  // Heddle does anyway (familiar_options.h). --help does not show them.
  void accept_familiar();

  // A name that this subcommand declares further on, as "--seed": no spelling of another option
  // here, though it is one elsewhere. Outlives the declarations.
  void reserve(std::string_view name) { reserved_.push_back(name); }

  // Between options declared before. Giving `name` without `other`, or with it, is an error: what
  // would have no effect is not accepted in silence.
  void needs(const char* name, const char* other);
  void excludes(const char* name, const char* other);

  // A condition on values: giving `name` is an error unless `holds` once everything is read.
  // `otherwise` continues the message "--name has no effect ": "without priorities; add ...".
  void has_effect_if(const char* name, std::function<bool()> holds, const char* otherwise);

  // The first option that was given and has no effect, as a sentence; "" when there is none. After
  // the parse.
  [[nodiscard]] std::string without_effect() const;

  // Without positionals and --help, in order of declaration.
  [[nodiscard]] std::vector<DeclaredOption> declared() const;

 private:
  void choice(const char* names, const std::string& default_word,
              const std::vector<std::string>& words, std::function<void(const std::string&)> store,
              const char* help);

  // "--threads" with other programs' spellings: "--threads,-t". A '!' before a name is kept.
  [[nodiscard]] std::string with_familiar_spellings(std::string_view names) const;

  struct Condition {
    const char* name;
    std::function<bool()> holds;
    const char* otherwise;
  };

  CLI::App& app_;
  std::string heading_ = "Options";
  std::vector<std::string_view> reserved_;
  std::vector<Condition> conditions_;
  std::vector<const CLI::Option*> flags_that_are_on_;
};

}  // namespace heddle::tools
