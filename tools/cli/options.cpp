// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/options.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <span>
#include <type_traits>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "checkpoint/hub_cache.h"
#include "core/edit_distance.h"
#include "tools/cli/config_file.h"
#include "tools/cli/familiar_options.h"
#include "tools/cli/option_names.h"
#include "tools/cli/subcommand.h"
#include "tools/cli/version.h"

namespace heddle::tools {
namespace {

// The text "; did you mean --port?", or "" if no candidate is similar.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  // In names of this length, as "--url", half of the letters could belong to another option.
  constexpr size_t kShortWord = 5;
  std::string best;
  size_t best_distance = word.size() <= kShortWord ? 2 : word.size() / 3 + 2;
  for (const std::string& candidate : candidates) {
    const size_t distance = edit_distance(word, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best.empty() ? "" : fmt::format("; did you mean {}?", best);
}

const CLI::App& root_of(const CLI::App& app) {
  return app.get_parent() == nullptr ? app : root_of(*app.get_parent());
}

// Whether a name has several letters after a single dash, as llama.cpp's -np. The parser does not
// know such names; it has --np instead.
bool is_long_with_one_dash(std::string_view name) {
  return name.size() > 2 && name[0] == '-' && name[1] != '-' &&
         find_familiar_option(name) != nullptr;
}

// Whether a familiar name lacks only a dash, as vLLM's "-tp" for "--tp".
bool lacks_a_dash(const FamiliarOption& option) {
  return option.kind == FamiliarOption::Kind::kSpelling && option.means.starts_with("--") &&
         option.means.substr(1) == option.name;
}

// The original spelling of an option: "-np" for the parser's "--np".
std::string spelling_outside(const std::string& name) {
  if (!name.starts_with("--") || find_familiar_option(name) != nullptr) return name;
  const std::string with_one_dash = name.substr(1);
  if (!is_long_with_one_dash(with_one_dash)) return name;
  return lacks_a_dash(*find_familiar_option(with_one_dash)) ? name : with_one_dash;
}

// The words of a subcommand, as "heddle bench offline".
std::string full_name(const CLI::App& app) {
  return app.get_parent() == nullptr ? app.get_name()
                                     : full_name(*app.get_parent()) + " " + app.get_name();
}

// Subcommands of Ollama, llama.cpp, vLLM and SGLang, and the command to use instead.
constexpr std::pair<std::string_view, std::string_view> kOtherCommands[] = {
    {"run", "heddle chat MODEL talks to a model, heddle generate MODEL TEXT continues a text"},
    {"pull", "`hf download ORG/NAME` brings a model, and heddle serve ORG/NAME serves it"},
    {"download", "`hf download ORG/NAME` brings a model, and heddle serve ORG/NAME serves it"},
    {"ls", "heddle list shows the models that are here"},
    {"ps", "GET /v1/models and /get_load of a server say what it serves"},
    {"show", "heddle inspect MODEL shows a model's settings"},
    {"rm", "`hf cache delete` removes models"},
    {"stop", "Ctrl-C or `kill` ends heddle serve, once its answers are sent"},
    {"start", "heddle serve MODEL starts a server"},
    {"server", "heddle serve MODEL starts a server"},
    {"complete", "heddle generate MODEL TEXT continues a text"},
    {"convert", "heddle quantize MODEL OUT_DIR writes a quantised copy"},
    {"benchmark", "heddle bench serve measures a server, heddle bench offline a model"},
};

std::string unknown_subcommand(const std::string& word, const std::vector<std::string>& commands) {
  const auto* const other = std::ranges::find(
      kOtherCommands, word, &std::pair<std::string_view, std::string_view>::first);
  if (other != std::end(kOtherCommands)) {
    return fmt::format("unknown subcommand \"{}\"; {}", word, other->second);
  }
  const std::string near = nearest(word, commands);
  return fmt::format("unknown subcommand \"{}\"{}", word,
                     near.empty() ? "; heddle --help lists those there are" : near);
}

// The error for unknown words. `app` is the innermost subcommand that was named.
std::string explain_unknown(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;  // options without effect are not suggested
    for (const std::string& name : option->get_lnames()) {
      names.push_back(spelling_outside("--" + name));
    }
  }
  const std::vector<std::string> rest = root_of(app).remaining(/*recurse=*/true);
  for (const std::string& argument : rest) {
    if (!argument.starts_with('-')) continue;
    const std::string name = spelling_outside(argument.substr(0, argument.find('=')));
    if (app.get_option_no_throw(name) != nullptr) {
      return fmt::format("{} follows --, after which no options are read; put it before", name);
    }
    const FamiliarOption* familiar = find_familiar_option(name);
    if (familiar != nullptr && familiar->kind == FamiliarOption::Kind::kRefused) {
      return fmt::format("there is no option {}: {}", name, familiar->means);
    }
    if (app.get_parent() == nullptr) {
      return fmt::format("unknown option {}; options follow a subcommand, as in heddle serve {}",
                         name, name);
    }
    const std::string near = nearest(name, names);
    return fmt::format(
        "unknown option {}{}", name,
        near.empty() ? fmt::format("; {} --help lists those there are", full_name(app)) : near);
  }
  const std::string word = rest.empty() ? "" : rest.front();
  std::vector<std::string> commands;
  for (const CLI::App* command : app.get_subcommands({})) commands.push_back(command->get_name());
  if (commands.empty()) {
    return fmt::format(
        "unexpected argument \"{}\"; a value with blanks stands in quotes, and {} "
        "--help shows what may stand there",
        word, full_name(app));
  }
  return unknown_subcommand(word, commands);
}

// The arguments with '-' instead of '_' in option names, as --max-tokens=3. Values and everything
// after "--" are unchanged.
std::vector<std::string> normalised_arguments(int argc, char** argv) {
  std::vector<std::string> arguments;
  bool options_end = false;
  for (int i = 1; i < argc; ++i) {
    std::string argument = argv[i];
    if (argument == "--") options_end = true;
    if (!options_end && argument.starts_with("--")) {
      const auto name_end = argument.begin() + static_cast<std::ptrdiff_t>(
                                                   std::min(argument.find('='), argument.size()));
      std::replace(argument.begin(), name_end, '_', '-');
    } else if (!options_end && is_long_with_one_dash(argument.substr(0, argument.find('=')))) {
      argument.insert(0, "-");
    }
    arguments.push_back(std::move(argument));
  }
  return arguments;
}

// Converts `heddle help serve` to `heddle serve --help`.
std::vector<std::string> help_as_option(std::vector<std::string> arguments) {
  if (arguments.empty() || arguments[0] != "help") return arguments;
  arguments.erase(arguments.begin());
  arguments.emplace_back("--help");
  return arguments;
}

// Prints a note for each option of another server that the subcommand `app` has accepted.
void explain_familiar(const CLI::App& app, const std::vector<std::string>& arguments) {
  for (const std::string& argument : arguments) {
    if (argument == "--") return;
    const std::string inside = argument.substr(0, argument.find('='));
    const FamiliarOption* familiar = find_familiar_option(spelling_outside(inside));
    using enum FamiliarOption::Kind;
    if (familiar == nullptr || familiar->kind == kRefused) continue;
    // Converted to another option, with a note of its own.
    if (familiar->kind == kWords || familiar->kind == kSampling) continue;
    if (familiar->kind == kSpelling &&
        app.get_option_no_throw(inside) != app.get_option_no_throw(std::string(familiar->means))) {
      continue;  // the subcommand has an option of its own with this name
    }
    const CLI::Option* const taken = app.get_option_no_throw(inside);
    const bool is_own = taken != nullptr && !taken->get_group().empty();
    if (familiar->kind != kSpelling && is_own) continue;
    fmt::print(stderr, "note: {}\n", note_on(*familiar));
  }
}

// Prints a note for each `tuning:` key on the command line, if the subcommand has --config, so that
// a file could contain it.
void explain_tuning(const CLI::App& app, const std::vector<std::string>& words,
                    const std::vector<FileSetting>& from_file) {
  if (app.get_option_no_throw("--config") == nullptr) return;
  for (const std::string& word : words) {
    if (word == "--") return;
    const std::string name = word.substr(0, word.find('='));
    const CLI::Option* const option = app.get_option_no_throw(name);
    const auto is_it = [&name](const FileSetting& each) {
      return each.tuning && "--" + each.name == name;
    };
    if (option == nullptr || option->get_group() != Options::kTuning ||
        std::ranges::any_of(from_file, is_it)) {
      continue;
    }
    fmt::print(stderr, "note: {} is for tuning; a file of --config has it below `tuning:`\n", name);
  }
}

// Formats help texts so that the examples, which are in CLI11's footer, come first.
class ExamplesFirst final : public CLI::Formatter {
 public:
  ExamplesFirst() { column_width(36); }

  std::string make_description(const CLI::App* app) const override {
    const std::string examples = app->get_footer();
    return (examples.empty() ? "" : examples + "\n") + CLI::Formatter::make_description(app);
  }

  std::string make_footer(const CLI::App*) const override { return {}; }

  std::string make_group(std::string group, bool is_positional,
                         std::vector<const CLI::Option*> options) const override {
    if (group != Options::kTuning) {
      return CLI::Formatter::make_group(std::move(group), is_positional, std::move(options));
    }
    return fmt::format("\n{}:\n  docs/options.md explains {} settings that few need\n", group,
                       options.size());
  }
};

// Refuses an empty argument, which is mostly an unset variable of the shell.
std::string not_empty(const std::string& value) {
  return value.empty() ? "\"\" is no value; give one or leave it out" : "";
}

CLI::Option* add(CLI::App& app, const std::string& names, std::string* target, const char* help) {
  return app.add_option(names, *target, help)->capture_default_str();
}

// Shortens the address of a model's page to "ORG/NAME", or that of a revision to
// "ORG/NAME@REVISION".
void shorten_hub_address(std::string& named) {
  constexpr std::string_view kSites[] = {"https://huggingface.co/", "https://hf.co/",
                                         "huggingface.co/", "hf.co/", "hf://"};
  const auto* const site = std::ranges::find_if(
      kSites, [&](std::string_view prefix) { return named.starts_with(prefix); });
  if (site == std::end(kSites)) return;
  named.erase(0, site->size());
  constexpr std::string_view kTree = "/tree/";
  if (const size_t tree = named.find(kTree); tree != std::string::npos) {
    named.replace(tree, kTree.size(), "@");
  }
  while (named.ends_with('/')) named.pop_back();
}

CLI::Option* add(CLI::App& app, const std::string& names, std::optional<std::string>* target,
                 const char* help) {
  return app.add_option_function<std::string>(
      names, [target](const std::string& value) { *target = value; }, help);
}

CLI::Option* add(CLI::App& app, const std::string& names, std::vector<std::string>* target,
                 const char* help) {
  return app.add_option(names, *target, help)->allow_extra_args(false);
}

// Declares an option with a number. The number is passed as text, because the parser's own
// conversion clamps and wraps. A number outside `range` ends the parse.
template <typename Number, typename Target>
CLI::Option* add_number(CLI::App& app, const std::string& names, Target* target,
                        const ValueRange& range, const char* help) {
  std::string name = names;  // the first name with two dashes
  name.erase(0, name.find("--"));
  name.erase(std::min(name.find(','), name.size()));
  auto store = [target, range, name](const std::string& text) {
    if (text == "auto") return;
    if (!range.keeps_default.empty() && text == range.keeps_default) {
      if constexpr (std::is_same_v<Number, Target>) {
        fmt::print(stderr, "note: {} {} leaves the default, {}\n", name, text, *target);
      }
      return;
    }
    const Result<Number> value = parse_number<Number>(text, range);
    if (!value.ok()) throw CLI::ValidationError(name, value.status().message());
    *target = *value;
  };
  return app.add_option_function<std::string>(names, std::move(store), help)
      ->type_name(std::is_integral_v<Number> ? "INT" : "FLOAT");
}

template <typename Number>
CLI::Option* add(CLI::App& app, const std::string& names, Number* target, const ValueRange& range,
                 const char* help) {
  return add_number<Number>(app, names, target, range, help)
      ->default_str(fmt::format("{}", *target));
}

template <typename Number>
CLI::Option* add(CLI::App& app, const std::string& names, std::optional<Number>* target,
                 const ValueRange& range, const char* help) {
  return add_number<Number>(app, names, target, range, help);
}

}  // namespace

void Options::examples(std::string_view lines) {
  std::string text = "Examples:\n";
  while (!lines.empty()) {
    const size_t end = std::min(lines.find('\n'), lines.size());
    text += fmt::format("  {}\n", lines.substr(0, end));
    lines.remove_prefix(std::min(end + 1, lines.size()));
  }
  app_.footer(text);
}

void Options::positional(const char* name, std::string* target, const char* help, bool required) {
  app_.add_option(name, *target, help)->required(required)->check(not_empty);
}

void Options::positional(const char* name, std::vector<std::string>* target, const char* help,
                         bool required) {
  app_.add_option(name, *target, help)->required(required)->check(not_empty);
}

void Options::model(const char* name, std::string* target, const char* help, bool required) {
  const auto find = [](std::string& named) -> std::string {
    shorten_hub_address(named);
    const Result<std::filesystem::path> folder = checkpoint::find_model(named);
    if (!folder.ok()) return std::string(folder.status().message());
    named = folder->string();
    return {};
  };
  const bool is_positional = *name != '-';
  CLI::Option* const option =
      app_.add_option(is_positional ? name : with_familiar_spellings(name), *target, help)
          ->required(required)
          ->check(not_empty)
          ->transform(CLI::Validator(find, ""));
  if (!is_positional) option->group(heading_);
}

std::string Options::with_familiar_spellings(std::string_view names) const {
  std::string all(names);
  while (!names.empty()) {
    const size_t end = std::min(names.find(','), names.size());
    std::string_view name = names.substr(0, end);
    names.remove_prefix(std::min(end + 1, names.size()));
    const std::string_view negation = name.starts_with('!') ? "!" : "";
    name.remove_prefix(negation.size());
    for (const FamiliarOption& option : familiar_options()) {
      if (option.kind != FamiliarOption::Kind::kSpelling || option.means != name) continue;
      if (lacks_a_dash(option)) continue;  // the arguments get the dash before they are parsed
      if (std::ranges::count(reserved_, option.name) > 0) continue;
      const char* const dash = is_long_with_one_dash(option.name) ? "-" : "";
      all += fmt::format(",{}{}{}", negation, dash, option.name);
    }
  }
  return all;
}

void Options::value(const char* names, Target target, const char* help) {
  const std::string all = with_familiar_spellings(names);
  std::visit([&](auto* place) { add(app_, all, place, help)->group(heading_); }, target);
}

void Options::value(const char* names, NumberTarget target, const ValueRange& range,
                    const char* help) {
  const std::string all = with_familiar_spellings(names);
  std::visit([&](auto* place) { add(app_, all, place, range, help)->group(heading_); }, target);
}

void Options::text(const char* names, Target target, const char* help) {
  const std::string all = with_familiar_spellings(names);
  std::visit([&](auto* place) { add(app_, all, place, help)->check(not_empty)->group(heading_); },
             target);
}

std::vector<DeclaredOption> Options::declared() const {
  std::vector<DeclaredOption> all;
  for (const CLI::Option* option : static_cast<const CLI::App&>(app_).get_options()) {
    if (option->get_positional() || option == app_.get_help_ptr()) continue;
    DeclaredOption& one = all.emplace_back();
    for (const std::string& name : option->get_lnames()) {
      one.names.push_back(spelling_outside("--" + name));
    }
    for (const std::string& name : option->get_snames()) one.names.push_back("-" + name);
    one.default_value = option->get_default_str();
    if (option->get_expected_max() == 0) {  // options without a value are flags
      const bool on = std::ranges::find(flags_that_are_on_, option) != flags_that_are_on_.end();
      one.default_value = on ? "on" : "off";
    }
    one.familiar = option->get_group().empty();
    one.tuning = option->get_group() == kTuning;
  }
  return all;
}

void Options::accept_familiar() {
  for (const FamiliarOption& option : familiar_options()) {
    const std::string name =
        (is_long_with_one_dash(option.name) ? "-" : "") + std::string(option.name);
    if (app_.get_option_no_throw(name) != nullptr) continue;
    if (option.kind == FamiliarOption::Kind::kFlag) {
      app_.add_flag(name)->group("");
    } else if (option.kind == FamiliarOption::Kind::kNumbers) {
      app_.add_option_function<std::vector<double>>(name, [](const std::vector<double>&) {})
          ->delimiter(',')
          ->group("");
    } else if (option.kind == FamiliarOption::Kind::kValue ||
               option.kind == FamiliarOption::Kind::kOptional) {
      const auto take = [option, name](const std::string& value) {
        const std::string words = fmt::format(" {} ", option.taken);
        if (option.taken.empty() || words.find(fmt::format(" {} ", value)) != std::string::npos) {
          return;
        }
        throw CLI::ValidationError(name, fmt::format("{} cannot be; {}", value, option.means));
      };
      app_.add_option_function<std::string>(name, take)->group("");
    }
  }
}

void Options::needs(const char* name, const char* other) {
  app_.get_option(name)->needs(app_.get_option(other));
}

void Options::excludes(const char* name, const char* other) {
  app_.get_option(name)->excludes(app_.get_option(other));
}

void Options::has_effect_if(const char* name, std::function<bool()> holds, const char* otherwise) {
  conditions_.push_back({name, std::move(holds), otherwise});
}

std::string Options::without_effect() const {
  for (const Condition& condition : conditions_) {
    if (app_.get_option(condition.name)->count() == 0 || condition.holds()) continue;
    return fmt::format("{} has no effect {}, or leave it out", condition.name, condition.otherwise);
  }
  return {};
}

void Options::choice(const char* names, const std::string& default_word,
                     const std::vector<std::string>& words,
                     std::function<void(const std::string&)> store, const char* help) {
  const auto is_word = CLI::IsMember(words);
  const auto take = [store = std::move(store), is_word](const std::string& value) {
    if (value != "auto" || is_word("auto").empty()) store(value);
  };
  const auto check = [is_word, words](const std::string& value) -> std::string {
    if (value == "auto" || is_word(value).empty()) return {};
    return fmt::format("\"{}\" is none of {}{}", value, fmt::join(words, ", "),
                       nearest(value, words));
  };
  app_.add_option_function<std::string>(with_familiar_spellings(names), take, help)
      ->default_str(default_word)
      ->type_name(fmt::format("{{{}}}", fmt::join(words, ",")))
      ->check(check)
      ->group(heading_);
}

void Options::parsed(const char* names, std::string_view shown_default,
                     std::function<Status(std::string_view)> store, const char* help) {
  const auto read = [store = std::move(store)](const std::string& text) {
    const Status status = store(text);
    if (!status.ok()) throw CLI::ValidationError(with_option_names(status.message()));
  };
  app_.add_option_function<std::string>(with_familiar_spellings(names), read, help)
      ->type_name("TEXT")
      ->default_str(std::string(shown_default))
      ->group(heading_);
}

void Options::flag(const char* names, bool* target, const char* help) {
  const CLI::Option* flag =
      app_.add_flag(with_familiar_spellings(names), *target, help)->group(heading_);
  if (*target) flags_that_are_on_.push_back(flag);
}

namespace {

int show_usage(const CLI::App& app) {
  fmt::print(stderr, "{}", app.help());
  return kExitUsage;
}

using Words = std::span<const std::string>;

// The words from the first one that is no option: `heddle --help serve` is about serve.
Words without_options(Words words) {
  while (!words.empty() && words[0].starts_with('-')) words = words.subspan(1);
  return words;
}

// Whether `words`, the first of which is no option, begin with the subcommand's name.
bool begins_with(Words words, const Subcommand& subcommand) {
  return !words.empty() && (words[0] == subcommand.name ||
                            (subcommand.alias != nullptr && words[0] == subcommand.alias));
}

// Adds a subcommand and its children to `parent`. `action` becomes that of the subcommand on the
// command line. `words`: the command line after the name of `parent`. Options are only declared for
// the named subcommand, because declaring all takes milliseconds.
void add_subcommand(CLI::App& parent, const Subcommand& subcommand, Words words, bool declares,
                    std::function<int()>& action) {
  CLI::App* app = parent.add_subcommand(subcommand.name, subcommand.summary);
  if (subcommand.alias != nullptr) app->alias(subcommand.alias);
  if (!declares) return;
  app->set_version_flag("--version", version_text)->group("");  // hidden in the help of subcommands
  const Words rest = without_options(words.empty() ? words : words.subspan(1));
  const bool names_child = std::ranges::any_of(
      subcommand.children, [&](const Subcommand* child) { return begins_with(rest, *child); });
  for (const Subcommand* child : subcommand.children) {  // all children, to show an example of each
    add_subcommand(*app, *child, rest, !names_child || begins_with(rest, *child), action);
  }
  if (subcommand.declare == nullptr) {
    std::string examples;  // the first example of every child
    for (const CLI::App* child : app->get_subcommands({})) {
      const std::string all = child->get_footer();
      size_t first = all.find("  ");  // the first example follows "Examples:\n"
      if (first == std::string::npos) continue;
      first += 2;
      examples += (examples.empty() ? "" : "\n") + all.substr(first, all.find('\n', first) - first);
    }
    Options(*app).examples(examples);
    app->callback([&action, app] {
      if (app->get_subcommands().empty()) action = [app] { return show_usage(*app); };
    });
    return;
  }
  Options options(*app);
  std::function<int()> run = subcommand.declare(options);
  for (CLI::Option* option : app->get_options()) {  // the last value is used, because scripts
                                                    // append options to override earlier ones
    if (!option->get_positional() && option->get_expected_max() == 1) option->take_last();
  }
  app->callback([&action, run = std::move(run), options] {
    const std::string complaint = options.without_effect();
    if (!complaint.empty()) throw CLI::ValidationError(complaint);
    action = run;
  });
}

// The innermost subcommand that `words` name, before they are parsed.
const CLI::App& named_app(const CLI::App& app, Words words) {
  words = without_options(words);
  if (words.empty()) return app;
  const std::vector<const CLI::App*> children =
      app.get_subcommands([&](const CLI::App* child) { return child->check_name(words[0]); });
  return children.empty() ? app : named_app(*children.front(), words.subspan(1));
}

// The innermost subcommand that the command line named.
const CLI::App& selected(const CLI::App& app) {
  const auto chosen = app.get_subcommands();
  return chosen.empty() ? app : selected(*chosen.front());
}

// The error as a sentence, with the option's name as it was typed, because it may have several.
std::string complaint_of(const CLI::Error& error, const CLI::App& app, Words words) {
  const std::string text = error.what();
  if (dynamic_cast<const CLI::ConversionError*>(&error) != nullptr) {
    return text + "; a flag stands alone, or takes true or false";
  }
  const size_t end = text.find_first_of(": ");
  const CLI::Option* const option = text.starts_with('-') && end != std::string::npos
                                        ? app.get_option_no_throw(text.substr(0, end))
                                        : nullptr;
  if (option == nullptr) return text;
  std::string name = text.substr(0, end);
  for (const std::string& word : words) {
    const std::string typed = word.substr(0, word.find('='));
    if (typed.starts_with("--") && app.get_option_no_throw(typed) == option) name = typed;
  }
  name = spelling_outside(name);
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) {
    return fmt::format("{} needs a value", name);
  }
  return name + text.substr(end);
}

}  // namespace

std::vector<DeclaredOption> declared_options(const Subcommand& subcommand) {
  CLI::App app;
  Options options(app);
  const std::function<int()> keeps_the_targets = subcommand.declare(options);
  return options.declared();
}

int report_failure(const Status& status) {
  fmt::print(stderr, "error: {}\n", status.message());
  return status.code() == StatusCode::kInvalidArgument ? kExitUsage : kExitFailure;
}

// Runs the program. The parser's exceptions are caught here.
int run_program(int argc, char** argv, std::span<const Subcommand* const> subcommands) {
  CLI::App root("Heddle serves hybrid language models from one binary.", "heddle");
  root.formatter(std::make_shared<ExamplesFirst>());
  root.set_version_flag("--version", version_text);
  Options(root).examples(
      "heddle serve                                          a small model on "
      "http://127.0.0.1:30000\n"
      "heddle generate \"Once upon a time\"                    one completion\n"
      "heddle chat ORG/NAME                                   a model that `hf download` brought\n"
      "heddle help serve                                     what a command takes");
  // At most one subcommand: in `heddle chat serve`, serve is a model's folder.
  root.require_subcommand(0, 1);
  std::function<int()> action;
  const std::vector<std::string> words = help_as_option(normalised_arguments(argc, argv));
  const Words named = without_options(words);
  const auto is_named = [&](const Subcommand* subcommand) {
    return begins_with(named, *subcommand);
  };
  if (argc > 2 && std::string_view(argv[1]) == "help" && !named.empty() &&
      std::ranges::none_of(subcommands, is_named)) {
    std::vector<std::string> names;
    for (const Subcommand* subcommand : subcommands) names.emplace_back(subcommand->name);
    fmt::print(stderr, "error: {}\n", unknown_subcommand(named[0], names));
    return kExitUsage;
  }
  for (const Subcommand* subcommand : subcommands) {
    add_subcommand(root, *subcommand, named, is_named(subcommand), action);
  }
  ArgumentsWithFile arguments;
  try {
    const CLI::App& app = named_app(root, words);
    auto all = with_config_file(root, words);
    const auto translated =
        all.ok() ? translated_words(all->words,
                                    [&app](const std::string& name) {
                                      return app.get_option_no_throw(name) != nullptr;
                                    })
                 : all.status();
    if (!translated.ok()) {
      fmt::print(stderr, "error: {}\n", translated.status().message());
      return kExitUsage;
    }
    arguments = std::move(all).value();
    const std::vector<std::string>& ordered = *translated;
    // CLI11 expects the words in reverse order.
    root.parse(std::vector<std::string>(ordered.rbegin(), ordered.rend()));
    explain_familiar(selected(root), ordered);
    explain_tuning(selected(root), ordered, arguments.from_file);
  } catch (const CLI::Success& success) {  // --help or --version was given
    return root.exit(success);
  } catch (const CLI::ExtrasError&) {
    const std::string complaint = explain_unknown(selected(root));
    fmt::print(stderr, "error: {}{}\n", place_in_file(arguments, complaint), complaint);
    return kExitUsage;
  } catch (const CLI::Error& error) {
    const CLI::App& app = selected(root);
    fmt::print(stderr, "error: {}{}\nTry: {} --help\n", place_in_file(arguments, error.what()),
               complaint_of(error, app, arguments.words), full_name(app));
    return kExitUsage;
  }
  return action ? action() : show_usage(root);
}

}  // namespace heddle::tools
