// SPDX-License-Identifier: Apache-2.0
// Subcommand: a word after `heddle` on the command line. Each is defined in a file of its own and
// listed in kSubcommands.
//
//   std::function<int()> declare_inspect(Options& options) {
//     auto settings = std::make_shared<InspectSettings>();
//     options.flag("--graph", &settings->graph, "Print the op graph");
//     return [settings] { return inspect(*settings); };
//   }
//   const Subcommand kInspect = {"inspect", "Show what a model is made of.", declare_inspect};
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <heddle/status.h>

#include "tools/cli/options.h"

namespace heddle::tools {

struct Subcommand {
  const char* name;
  const char* summary;

  // Declares the options. The returned function is called after they were parsed and returns the
  // exit code; it must own everything that the options write to. Null for a subcommand with
  // children.
  std::function<int()> (*declare)(Options& options) = nullptr;

  // For commands of two words, such as `heddle bench offline`: the second word must be one of
  // these.
  std::span<const Subcommand* const> children = {};

  const char* alias = nullptr;
};

// Exit codes besides 0: the command failed, or the command line is wrong. After a signal the code
// is 128 + signal.
inline constexpr int kExitFailure = 1;
inline constexpr int kExitUsage = 2;

// Ends a subcommand that failed: prints one line on standard error and returns the exit code,
// kExitUsage for kInvalidArgument, because the command line named the invalid thing, else
// kExitFailure.
int report_failure(const Status& status);

// Parses the command line and runs its subcommand. '_' in an option's name is read as '-'.
int run_program(int argc, char** argv, std::span<const Subcommand* const> subcommands);

// The options of a subcommand without children.
std::vector<DeclaredOption> declared_options(const Subcommand& subcommand);

extern const Subcommand kServe;
extern const Subcommand kGenerate;
extern const Subcommand kChat;
extern const Subcommand kBench;
extern const Subcommand kBenchCache;        // child of kBench
extern const Subcommand kBenchSpeculative;  // child of kBench
extern const Subcommand kBenchServe;        // child of kBench
extern const Subcommand kVerify;
extern const Subcommand kEval;
extern const Subcommand kInspect;
extern const Subcommand kQuantize;
extern const Subcommand kMerge;
extern const Subcommand kExportNextn;
extern const Subcommand kList;
extern const Subcommand kVersion;

// All subcommands of the program, in the order of --help.
inline constexpr const Subcommand* kSubcommands[] = {
    &kServe, &kGenerate, &kChat,     &kList,  &kBench,       &kVerify,
    &kEval,  &kInspect,  &kQuantize, &kMerge, &kExportNextn, &kVersion};

}  // namespace heddle::tools
