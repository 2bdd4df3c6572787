// SPDX-License-Identifier: Apache-2.0
// Options: declares the options of a subcommand without the parser's header, which costs seconds of
// compile time in every file that includes it.
//
//   options.examples("heddle serve\nheddle serve models/heddle-tiny --port 8000");
//   options.positional("MODEL_DIR", &settings->model_dir, "folder of the model");
//   options.value("-p,--port", &settings->port, "port to listen on");
//   options.value("--threads", &settings->threads, ranges::kThreads, "compute threads");
//
// Names are spelled with '-'; '_' is accepted instead. Spellings of other servers
// (familiar_options.h) are added automatically. A target keeps its value if its option is not
// given, and that value is shown as the default. For a number or a choice, "auto" also keeps it.
// Targets must outlive the parse.
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

// An option as it was declared. A test compares docs/options.md with all of these.
struct DeclaredOption {
  // All spellings, as "--port" and "-p", including those that switch a flag off.
  std::vector<std::string> names;
  std::string default_value;  // default as --help shows it; "on" or "off" for a flag; "" for none
  bool familiar = false;      // declared by Options::accept_familiar()
  bool tuning = false;        // declared below Options::kTuning
};

class Options {
 public:
  using Target = std::variant<std::string*, std::optional<std::string>*,
                              std::vector<std::string>*>;  // for a list, the option may be repeated
  using NumberTarget =
      std::variant<int32_t*, int64_t*, uint64_t*, uint16_t*, double*, float*,
                   std::optional<int32_t>*, std::optional<int64_t>*, std::optional<uint64_t>*,
                   std::optional<double>*, std::optional<float>*>;

  explicit Options(CLI::App& app) : app_(app) {}

  // Sets example commands, one per line, which --help shows first.
  void examples(std::string_view lines);

  // Options declared after this are listed under this heading in --help. Below kTuning they are
  // keys of `tuning:` in a file of options (config_file.h), which few users need and --help does
  // not list; the command line accepts them by the same names.
  void heading(std::string_view title) { heading_ = title; }

  static constexpr std::string_view kTuning = "Tuning";

  // Declares a positional argument. An empty one, such as an unset variable "$UNSET", is an error.
  void positional(const char* name, std::string* target, const char* help, bool required = true);
  // Declares a list of positional arguments: one or more, or, if not `required`, zero or more.
  void positional(const char* name, std::vector<std::string>* target, const char* help,
                  bool required = true);

  // Declares a model: its folder, or its name in the hub's cache, which is replaced by its folder
  // there (checkpoint/hub_cache.h). A `name` without dashes is a positional argument.
  void model(const char* name, std::string* target, const char* help, bool required = true);

  // Declares an option. `names` contains one or more spellings: "-p,--port".
  void value(const char* names, Target target, const char* help);

  // Declares an option with a number. A value outside `range` is an error that names the option,
  // the value and the range.
  void value(const char* names, NumberTarget target, const ValueRange& range, const char* help);

  void value(const char* names, NumberTarget target, const char* help) {
    value(names, target, ranges::kAny, help);
  }

  // Declares an option with a text that must not be empty.
  void text(const char* names, Target target, const char* help);

  // Declares an option whose value is one of `words`; "auto" keeps the default.
  void choice(const char* names, std::string* target, const std::vector<std::string>& words,
              const char* help) {
    choice(names, *target, words, [target](const std::string& word) { *target = word; }, help);
  }

  // Like choice(), for an enum; `parse` converts a word to a value.
  template <typename Choice>
  void choice(const char* names, Choice* target, Result<Choice> (*parse)(std::string_view),
              const std::vector<std::string>& words, const char* help) {
    const auto store = [target, parse](const std::string& word) { *target = parse(word).value(); };
    choice(names, std::string(to_string(*target)), words, store, help);
  }

  // Declares an option with a text that `store` parses. An error of `store` becomes one of the
  // option; names of fields in it are replaced by those of options (option_names.h).
  void parsed(const char* names, std::string_view shown_default,
              std::function<Status(std::string_view)> store, const char* help);

  // Declares a flag. A spelling that begins with '!' switches it off: "--feature,!--no-feature".
  void flag(const char* names, bool* target, const char* help);

  // Declares options of other servers that change nothing here; they are accepted if their value
  // requests what Heddle does anyway (familiar_options.h). --help does not show them.
  void accept_familiar();

  // Reserves a name, such as "--seed", that this subcommand declares later, so that it does not
  // become a spelling of another option. `name` outlives the declarations.
  void reserve(std::string_view name) { reserved_.push_back(name); }

  // Rules for two declared options: giving `name` without `other` (needs()) or with it (excludes())
  // is an error, so that no option is silently ignored.
  void needs(const char* name, const char* other);
  void excludes(const char* name, const char* other);

  // A rule about values: giving `name` is an error unless `holds` returns true after the parse.
  // `otherwise` completes the message "--name has no effect ", as "without priorities; add ...".
  void has_effect_if(const char* name, std::function<bool()> holds, const char* otherwise);

  // After the parse: a sentence about the first given option that has no effect; "" if there is
  // none.
  [[nodiscard]] std::string without_effect() const;

  // The options in order of declaration, without positional arguments and --help.
  [[nodiscard]] std::vector<DeclaredOption> declared() const;

 private:
  void choice(const char* names, const std::string& default_word,
              const std::vector<std::string>& words, std::function<void(const std::string&)> store,
              const char* help);

  // Adds other programs' spellings: "--threads" becomes "--threads,-t". A '!' before a name is
  // kept.
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
