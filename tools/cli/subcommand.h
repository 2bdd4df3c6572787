// SPDX-License-Identifier: Apache-2.0
// Subcommand: one word after `heddle`. Each has a file of its own that defines it; kSubcommands
// lists them.
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

  // Declares the options. The returned function runs after they were parsed and gives the exit
  // code; whatever the options write to must live in it. Null for one with children.
  std::function<int()> (*declare)(Options& options) = nullptr;

  // `heddle bench offline`: one of them must follow.
  std::span<const Subcommand* const> children = {};

  const char* alias = nullptr;
};

// Exit codes beside 0: failed, and the command line is wrong. 128 + signal when stopped by one.
inline constexpr int kExitFailure = 1;
inline constexpr int kExitUsage = 2;

// The end of a subcommand that failed: one line on standard error. Returns the exit code:
// kExitUsage for kInvalidArgument, because the command line named what is invalid; else
// kExitFailure.
int report_failure(const Status& status);

// Parses the command line and runs what it names. '_' in an option's name is read as '-'.
int run_program(int argc, char** argv, std::span<const Subcommand* const> subcommands);

// The options of one without children.
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

// All of the program, in the order of --help.
inline constexpr const Subcommand* kSubcommands[] = {
    &kServe, &kGenerate, &kChat,     &kList,  &kBench,       &kVerify,
    &kEval,  &kInspect,  &kQuantize, &kMerge, &kExportNextn, &kVersion};

}  // namespace heddle::tools
