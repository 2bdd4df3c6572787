// SPDX-License-Identifier: Apache-2.0
#include "line_editor.h"

#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <histedit.h>
#include <unistd.h>

namespace heddle::tools {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxHistory = 1000;  // messages
constexpr std::wstring_view kPasteEnd = L"\x1b[201~";
constexpr std::string_view kTripleQuote = R"(""")";

// "Bracketed paste": the terminal puts marks around what is pasted, so that its newlines are text.
constexpr std::string_view kMarkPastes = "\x1b[?2004h";
constexpr std::string_view kMarkNoPastes = "\x1b[?2004l";

void write_to_terminal(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

unsigned char clear_line(EditLine* editor, int /*key*/) {
  const LineInfo* line = el_line(editor);
  if (line->lastchar == line->buffer) {
    write_to_terminal("\n/exit or Ctrl-D leaves\n");
    return CC_REDISPLAY;
  }
  const LineInfoW* wide = el_wline(editor);
  el_cursor(editor, static_cast<int>(wide->lastchar - wide->cursor));
  wide = el_wline(editor);
  el_deletestr(editor, static_cast<int>(wide->lastchar - wide->buffer));
  return CC_REFRESH;
}

unsigned char insert_newline(EditLine* editor, int /*key*/) {
  return el_insertstr(editor, "\n") == 0 ? CC_REFRESH : CC_ERROR;
}

unsigned char insert_paste(EditLine* editor, int /*key*/) {
  std::wstring pasted;
  wchar_t key = 0;
  while (el_wgetc(editor, &key) == 1) {
    pasted += key == L'\r' ? L'\n' : key;
    if (pasted.ends_with(kPasteEnd)) {
      pasted.resize(pasted.size() - kPasteEnd.size());
      break;
    }
  }
  return pasted.empty() || el_winsertstr(editor, pasted.c_str()) == 0 ? CC_REFRESH : CC_ERROR;
}

}  // namespace

class LineEditor::Terminal {
 public:
  explicit Terminal(fs::path history_file) : history_file_(std::move(history_file)) {
    std::setlocale(LC_CTYPE, "C.UTF-8");  // or libedit would take a character for several
    history_ = history_init();
    HistEvent event;
    history(history_, &event, H_SETSIZE, kMaxHistory);
    history(history_, &event, H_SETUNIQUE, 1);
    if (!history_file_.empty()) history(history_, &event, H_LOAD, history_file_.c_str());

    editor_ = el_init("heddle", stdin, stdout, stderr);
    el_set(editor_, EL_CLIENTDATA, this);
    el_set(editor_, EL_PROMPT, &Terminal::prompt);
    el_set(editor_, EL_EDITOR, "emacs");
    el_set(editor_, EL_HIST, &history, history_);
    el_set(editor_, EL_SETTY, "-d", "intr=", nullptr);  // Ctrl-C is a key while a line is edited
    el_set(editor_, EL_ADDFN, "heddle-clear-line", "Empty the line", &clear_line);
    el_set(editor_, EL_ADDFN, "heddle-newline", "Begin another line", &insert_newline);
    el_set(editor_, EL_ADDFN, "heddle-paste", "Insert what is pasted", &insert_paste);
    const std::pair<const char*, const char*> bindings[] = {
        {"^C", "heddle-clear-line"},   {"\\e^M", "heddle-newline"},
        {"\\e[200~", "heddle-paste"},  {"^R", "em-inc-search-prev"},
        {"^W", "ed-delete-prev-word"}, {"\\e[1;5C", "em-next-word"},
        {"\\e[1;5D", "ed-prev-word"},  {"\\e[3~", "ed-delete-next-char"}};
    for (const auto& [key, command] : bindings) el_set(editor_, EL_BIND, key, command, nullptr);
  }

  ~Terminal() {
    el_end(editor_);
    history_end(history_);
  }

  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  // Without the newline at its end.
  std::optional<std::string> line(const char* prompt) {
    prompt_ = prompt;
    el_resize(editor_);  // the window may have another size than before
    write_to_terminal(kMarkPastes);
    int length = 0;
    const char* text = el_gets(editor_, &length);
    write_to_terminal(kMarkNoPastes);
    if (text == nullptr || length <= 0) {
      write_to_terminal("\n");
      return std::nullopt;
    }
    std::string line(text, static_cast<size_t>(length));
    if (line.ends_with('\n')) line.pop_back();
    return line;
  }

  void remember(const std::string& message) {
    HistEvent event;
    history(history_, &event, H_ENTER, message.c_str());
    if (history_file_.empty()) return;
    std::error_code ignored;
    fs::create_directories(history_file_.parent_path(), ignored);
    const int file = ::open(history_file_.c_str(), O_CREAT | O_CLOEXEC | O_WRONLY, 0600);
    if (file < 0) return;
    ::close(file);
    history(history_, &event, H_SAVE, history_file_.c_str());
  }

 private:
  static char* prompt(EditLine* editor) {
    void* self = nullptr;
    el_get(editor, EL_CLIENTDATA, &self);
    return const_cast<char*>(static_cast<Terminal*>(self)->prompt_);  // libedit only reads it
  }

  fs::path history_file_;
  History* history_;
  EditLine* editor_;
  const char* prompt_ = "";
};

LineEditor::LineEditor(fs::path history_file)
    : terminal_(std::make_unique<Terminal>(std::move(history_file))) {}

LineEditor::~LineEditor() = default;

std::optional<std::string> LineEditor::read() {
  std::optional<std::string> message = terminal_->line("> ");
  if (!message) return message;
  if (message->starts_with(kTripleQuote)) {
    message->erase(0, kTripleQuote.size());
    while (!message->ends_with(kTripleQuote)) {
      const std::optional<std::string> more = terminal_->line("... ");
      if (!more) return std::nullopt;
      *message += (message->empty() ? "" : "\n") + *more;
    }
    message->resize(message->size() - kTripleQuote.size());
    if (message->ends_with('\n')) message->pop_back();
  } else {
    while (message->ends_with('\\')) {
      message->back() = '\n';
      const std::optional<std::string> more = terminal_->line("... ");
      if (!more) return std::nullopt;
      *message += *more;
    }
  }
  if (message->find_first_not_of(" \t\n") != std::string::npos) terminal_->remember(*message);
  return message;
}

fs::path chat_history_file() {
  if (const char* state = std::getenv("XDG_STATE_HOME"); state != nullptr && *state == '/') {
    return fs::path(state) / "heddle" / "chat_history";
  }
  const char* home = std::getenv("HOME");
  if (home == nullptr || *home == '\0') return {};
  return fs::path(home) / ".local" / "state" / "heddle" / "chat_history";
}

}  // namespace heddle::tools
