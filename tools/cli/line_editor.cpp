// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/line_editor.h"

#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <histedit.h>
#include <signal.h>
#include <termios.h>
#include <unistd.h>

#include "core/folder_lock.h"

namespace heddle::tools {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxHistory = 1000;  // limit for the messages in the history
constexpr std::wstring_view kPasteEnd = L"\x1b[201~";
constexpr std::string_view kTripleQuote = R"(""")";

// Switches on "bracketed paste": the terminal marks pasted text, so that newlines in it do not end
// the line.
constexpr std::string_view kMarkPastes = "\x1b[?2004h";
constexpr std::string_view kMarkNoPastes = "\x1b[?2004l";

void write_to_terminal(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

}  // namespace

class LineEditor::Terminal {
 public:
  explicit Terminal(fs::path history_file) : history_file_(std::move(history_file)) {
    ::tcgetattr(STDIN_FILENO, &before_);
    // Otherwise libedit would read a multi-byte character as several.
    std::setlocale(LC_CTYPE, "C.UTF-8");
    history_ = history_init();
    load(history_);

    editor_ = el_init("heddle", stdin, stdout, stderr);
    el_set(editor_, EL_CLIENTDATA, this);
    el_set(editor_, EL_PROMPT, &Terminal::prompt);
    el_set(editor_, EL_EDITOR, "emacs");
    el_set(editor_, EL_HIST, &history, history_);
    // Disables these keys' signals while a line is edited.
    el_set(editor_, EL_SETTY, "-d", "-intr", "-susp", nullptr);
    // Ctrl-C during an answer is not shown as "^C".
    el_set(editor_, EL_SETTY, "-x", "-echoctl", nullptr);
    el_set(editor_, EL_ADDFN, "heddle-clear-line", "Empty the line", &clear_line);
    el_set(editor_, EL_ADDFN, "heddle-newline", "Begin another line", &insert_newline);
    el_set(editor_, EL_ADDFN, "heddle-paste", "Insert what is pasted", &insert_paste);
    el_set(editor_, EL_ADDFN, "heddle-suspend", "Stop the process", &suspend);
    const std::pair<const char*, const char*> bindings[] = {
        {"^C", "heddle-clear-line"},      {"^Z", "heddle-suspend"},
        {"\\e^J", "heddle-newline"},      {"\\e[200~", "heddle-paste"},
        {"^R", "em-inc-search-prev"},     {"^W", "ed-delete-prev-word"},
        {"\\e[1;5C", "em-next-word"},     {"\\e[1;5D", "ed-prev-word"},
        {"\\e[3~", "ed-delete-next-char"}};
    for (const auto& [key, command] : bindings) el_set(editor_, EL_BIND, key, command, nullptr);
  }

  ~Terminal() {
    el_end(editor_);
    history_end(history_);
  }

  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  // Reads a line, without its newline. `continues`: the line belongs to a message that began
  // earlier.
  std::optional<std::string> line(bool continues) {
    continues_ = continues;
    was_pasted_ = false;
    is_abandoned_ = false;
    el_resize(editor_);  // the window's size may have changed
    // Prepares the terminal before the prompt is shown, because keys may arrive right after it;
    // libedit itself does so only later.
    el_set(editor_, EL_PREP_TERM, 1);
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

  // About the last line: whether text was pasted into it, and whether Ctrl-C discarded its message.
  [[nodiscard]] bool was_pasted() const { return was_pasted_; }

  [[nodiscard]] bool is_abandoned() const { return is_abandoned_; }

  void remember(const std::string& message) {
    HistEvent event;
    history(history_, &event, H_ENTER, message.c_str());
    if (history_file_.empty()) return;
    std::error_code ignored;
    fs::create_directories(history_file_.parent_path(), ignored);
    const FolderLock lock(history_file_.parent_path(), /*max_wait_seconds=*/1);
    const fs::file_type type = fs::symlink_status(history_file_, ignored).type();
    if (type != fs::file_type::regular && type != fs::file_type::not_found) return;
    // Keeps messages that other chats have written since this one began.
    History* const all = history_init();
    load(all);
    history(all, &event, H_ENTER, message.c_str());
    // Written to another file and renamed, so that the file is complete whenever the process ends.
    const fs::path written = history_file_.string() + fmt::format(".{}", ::getpid());
    const int file = ::open(written.c_str(), O_CREAT | O_EXCL | O_CLOEXEC | O_WRONLY, 0600);
    if (file >= 0) {
      ::close(file);
      history(all, &event, H_SAVE, written.c_str());
      fs::rename(written, history_file_, ignored);
    }
    history_end(all);
  }

  // Restores the terminal; called from any thread.
  void restore() const {
    write_to_terminal(kMarkNoPastes);
    ::tcsetattr(STDIN_FILENO, TCSADRAIN, &before_);
  }

 private:
  void load(History* into) const {
    HistEvent event;
    history(into, &event, H_SETSIZE, kMaxHistory);
    history(into, &event, H_SETUNIQUE, 1);
    if (!history_file_.empty()) history(into, &event, H_LOAD, history_file_.c_str());
  }

  static Terminal& of(EditLine* editor) {
    void* self = nullptr;
    el_get(editor, EL_CLIENTDATA, &self);
    return *static_cast<Terminal*>(self);
  }

  static char* prompt(EditLine* editor) {
    // Libedit only reads this text.
    return const_cast<char*>(of(editor).continues_ ? "... " : "> ");
  }

  // Handles Ctrl-C.
  static unsigned char clear_line(EditLine* editor, int /*key*/) {
    const LineInfoW* line = el_wline(editor);
    if (of(editor).continues_) {
      of(editor).is_abandoned_ = true;
      return CC_NEWLINE;
    }
    if (line->lastchar == line->buffer) {
      write_to_terminal("\n/exit or Ctrl-D leaves\n");
      return CC_REDISPLAY;
    }
    el_cursor(editor, static_cast<int>(line->lastchar - line->cursor));
    line = el_wline(editor);
    el_deletestr(editor, static_cast<int>(line->lastchar - line->buffer));
    return CC_REFRESH;
  }

  static unsigned char insert_newline(EditLine* editor, int /*key*/) {
    return el_insertstr(editor, "\n") == 0 ? CC_REFRESH : CC_ERROR;
  }

  static unsigned char insert_paste(EditLine* editor, int /*key*/) {
    of(editor).was_pasted_ = true;
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

  // Handles Ctrl-Z: restores the shell's terminal settings until the process is resumed.
  static unsigned char suspend(EditLine* editor, int /*key*/) {
    of(editor).restore();
    ::kill(0, SIGTSTP);
    el_set(editor, EL_PREP_TERM, 1);
    write_to_terminal(kMarkPastes);
    return CC_REDISPLAY;
  }

  fs::path history_file_;
  History* history_;
  EditLine* editor_;
  termios before_ = {};
  bool continues_ = false;
  bool was_pasted_ = false;
  bool is_abandoned_ = false;
};

LineEditor::LineEditor(fs::path history_file)
    : terminal_(std::make_unique<Terminal>(std::move(history_file))) {}

LineEditor::~LineEditor() = default;

std::optional<std::string> LineEditor::read() {
  while (true) {
    std::optional<std::string> message = terminal_->line(/*continues=*/false);
    if (!message) return message;
    if (!terminal_->was_pasted() && !read_rest(*message)) return std::nullopt;
    if (terminal_->is_abandoned()) continue;
    if (message->find_first_not_of(" \t\n") != std::string::npos) terminal_->remember(*message);
    return message;
  }
}

bool LineEditor::read_rest(std::string& message) {
  const bool is_quoted = message.starts_with(kTripleQuote);
  if (is_quoted) message.erase(0, kTripleQuote.size());
  while (is_quoted ? !message.ends_with(kTripleQuote) : message.ends_with('\\')) {
    if (!is_quoted) message.pop_back();
    const std::optional<std::string> more = terminal_->line(/*continues=*/true);
    if (!more) return false;
    if (terminal_->is_abandoned()) return true;
    if (!is_quoted || !message.empty()) message += '\n';
    message += *more;
  }
  if (is_quoted) message.resize(message.size() - kTripleQuote.size());
  if (is_quoted && message.ends_with('\n')) message.pop_back();
  return true;
}

void LineEditor::restore_terminal() const { terminal_->restore(); }

fs::path chat_history_file() {
  if (const char* state = std::getenv("XDG_STATE_HOME"); state != nullptr && *state == '/') {
    return fs::path(state) / "heddle" / "chat_history";
  }
  const char* home = std::getenv("HOME");
  if (home == nullptr || *home == '\0') return {};
  return fs::path(home) / ".local" / "state" / "heddle" / "chat_history";
}

}  // namespace heddle::tools
