"""What Hermes says by itself, where Hermes was installed without its language files.

Such a Hermes shows the name of a text in its place: `gateway.stop.stopped`, and on a card
`gateway.confirm.destructive_prompt`, so that a person would confirm what nobody can read. Newer
Hermes versions let a plugin add to a language; this adds English for what an app's user meets, and
only where Hermes has nothing of its own. The words in braces are Hermes' own fields.
"""

from __future__ import annotations

import importlib
import logging
from typing import Any, Final

log = logging.getLogger("hermes_mobile")

LANGUAGE: Final = "en"
# A name that every language file of Hermes has.
_KNOWN_NAME: Final = "gateway.stop.stopped"

ENGLISH: Final[dict[str, str]] = {
    "gateway.stop.stopped": "⚡ Stopped. You can go on from here.",
    "gateway.stop.stopped_pending": "⚡ Stopped before it began.",
    "gateway.stop.force_stopped_pending": "⚡ Stopped before it began.",
    "gateway.stop.no_active": "Nothing is running.",
    "gateway.unknown_command": "There is no command `/{command}`; /help lists them.",
    "gateway.help.header": "📖 **Commands**",
    "gateway.help.skill_header": "**Skills** ({count})",
    "gateway.help.more_use_commands": "… and {count} more: /commands",
    "gateway.commands.header": "📖 **Commands**, page {page} of {total_pages}",
    "gateway.commands.skill_header": "**Skills**",
    "gateway.commands.default_desc": "(no description)",
    "gateway.commands.nav_next": "Next: `/commands {page}`",
    "gateway.commands.nav_prev": "Back: `/commands {page}`",
    "gateway.commands.none": "There are no commands.",
    "gateway.commands.out_of_range": "There is no page {requested}; this is page {page}.",
    "gateway.commands.usage": "Usage: `/commands [page]`",
    "slash.shared.alias_note": " (also {aliases})",
    "slash.shared.plugin_default_desc": "(of the plugin {name})",
    # Who and how
    "gateway.whoami.header": "👤 `{user_id}` on {platform}, {scope}\n",
    "gateway.whoami.scope_dm": "a conversation of two",
    "gateway.whoami.scope_group": "a group",
    "gateway.whoami.tier_unrestricted": "All commands are yours.",
    "gateway.whoami.tier_admin": "All commands are yours, as an administrator.",
    "gateway.whoami.tier_user": "Your commands: {commands}",
    "gateway.yolo.enabled": "⚠️ From now on commands run without asking, in this conversation.",
    "gateway.yolo.disabled": "✅ Dangerous commands are asked for again.",
    "gateway.voice.help": "{toggle}\n`/voice on`, `/voice off`, `/voice status`{channels}",
    "gateway.voice.help_channels": "",
    "gateway.voice.enabled_short": "🔊 Answers are spoken.",
    "gateway.voice.disabled_short": "🔇 Answers are not spoken.",
    "gateway.voice.status_mode": "Spoken answers: {label}",
    "gateway.reasoning.status": "Reasoning: {level} ({scope}), shown: {display}",
    "gateway.reasoning.level_default": "as the model does by itself",
    "gateway.reasoning.level_disabled": "off",
    "gateway.reasoning.scope_session": "this conversation",
    "gateway.reasoning.scope_global": "all conversations",
    "gateway.reasoning.display_on": "yes",
    "gateway.reasoning.display_off": "no",
    "gateway.reasoning.set_session": "Reasoning: {effort}, in this conversation",
    "gateway.reasoning.set_global": "Reasoning: {effort}, in all conversations",
    "gateway.reasoning.reset_done": "Reasoning: as set for all conversations",
    "gateway.reasoning.unknown_arg": "`{arg}` is no level of reasoning.",
    "gateway.reasoning.block": "💭 {reasoning}\n\n{response}",
    "gateway.reasoning.more_lines": "… {count} more lines",
    # Approvals
    "gateway.approve.once_singular": "✅ Allowed once. The agent goes on.",
    "gateway.approve.once_plural": "✅ {count} commands allowed once. The agent goes on.",
    "gateway.approve.session_singular": "✅ Allowed for this session. The agent goes on.",
    "gateway.approve.session_plural": "✅ {count} commands allowed for this session.",
    "gateway.approve.always_singular": "✅ Allowed for ever. The agent goes on.",
    "gateway.approve.always_plural": "✅ {count} commands allowed for ever.",
    "gateway.approve.no_pending": "No command waits for an approval.",
    "gateway.approval_expired": "⚠️ That approval is over; the agent no longer waits for it.",
    "gateway.deny.denied_singular": "❌ Denied.",
    "gateway.deny.denied_plural": "❌ {count} commands denied.",
    "gateway.deny.denied_reason_singular": "❌ Denied. The agent is told: “{reason}”",
    "gateway.deny.denied_reason_plural": "❌ {count} denied. The agent is told: “{reason}”",
    "gateway.deny.no_pending": "No command waits for an approval.",
    "gateway.deny.stale": "⚠️ That approval is over; nothing was denied.",
    "gateway.exec_approval.header": "⚠️ **May this command run?**",
    "gateway.exec_approval.smart_deny_heading": "🛑 **May this command run all the same?**",
    "gateway.exec_approval.smart_deny_line": "A second model advises against it.",
    "gateway.exec_approval.default_reason": "dangerous command",
    "gateway.exec_approval.reason_label": "Reason",
    "gateway.exec_approval.text_body": (
        "{heading}\n\n```\n{command}\n```\n{reason_label}: {reason}\n\n"
    ),
    "gateway.exec_approval.text_choice_once": "`{prefix}approve` to allow it once",
    "gateway.exec_approval.text_choice_session": "`{prefix}approve session` for this session",
    "gateway.exec_approval.text_choice_always": "`{prefix}approve always` for ever",
    "gateway.exec_approval.text_choice_deny": "`{prefix}deny` to refuse",
    "gateway.exec_approval.text_choice_joiner": ", ",
    "gateway.exec_approval.text_choice_last": " or {choice}",
    "gateway.exec_approval.deadline": "It waits for {window}.",
    "gateway.exec_approval.timed_out_notice": "Nobody answered within {window}: denied.",
    "gateway.exec_approval.timed_out_card_body": "{command}\n\n{notice}",
    # Confirmations
    "gateway.confirm.destructive_prompt": "{detail}\n\nGo on with {prefix}{command}?",
    "gateway.confirm.detail_new": "This ends the conversation and starts a new one.",
    "gateway.confirm.detail_undo_one": "This takes back the last exchange.",
    "gateway.confirm.detail_undo_many": "This takes back the last {count} exchanges.",
    "gateway.confirm.cancelled": "/{command} was cancelled. Nothing has changed.",
    "gateway.confirm.destructive_optout": "\n\nYou will not be asked again.",
    "gateway.confirm.destructive_optout_save_failed": (
        "\n\nThis choice could not be kept: you will be asked again."
    ),
    "gateway.reload_mcp.confirm_prompt": "This connects the tool servers anew. Go on?",
    "gateway.reload_mcp.cancelled": "Cancelled. Nothing has changed.",
    "gateway.reload_mcp.always_followup": "You will not be asked again.",
    "gateway.reload_mcp.header": "🔄 **Tool servers**",
    "gateway.reload_mcp.none_connected": "No tool server is connected.",
    "gateway.reload_mcp.tools_available": "{tools} tools of {servers} servers.",
    "gateway.reload_mcp.failed": "⚠️ The tool servers could not be connected anew: {error}",
    # The conversation
    "gateway.reset.header_default": "✨ A new conversation begins.",
    "gateway.reset.header_new": "✨ A new conversation begins.",
    "gateway.reset.header_titled": "✨ A new conversation begins: {title}",
    "gateway.reset.tip": "\n\n{tip}",
    "gateway.reset.title_rejected": "\n⚠️ The title was not taken: {error}",
    "gateway.reset.title_error_untitled": "\n⚠️ It has no title: {error}",
    "gateway.reset.title_empty_untitled": "\n⚠️ It has no title: nothing usable was left of it.",
    "gateway.session.auto_reset_notice": "◐ A new conversation began after a long pause.",
    "gateway.session.auto_reset_context_exhausted": (
        "◐ A new conversation began: the old one had become too long."
    ),
    "gateway.session.info_model": "Model: `{model}`",
    "gateway.session.info_provider": "Provider: {provider}",
    "gateway.session.info_context": "Context: {tokens} tokens ({source})",
    "gateway.session.info_endpoint": "Endpoint: {url}",
    "gateway.session.info_acting_model": "At work: `{model}` ({provider})",
    "gateway.undo.nothing": "There is nothing to take back.",
    "gateway.undo.removed": "↩️ {count} messages taken back. The last was: {preview}",
    "gateway.undo.invalid_count": "`{arg}` is no number.",
    "gateway.retry.no_previous": "There is no message to try again.",
    "gateway.title.set_to": "✏️ Title: **{title}**",
    "gateway.title.current_with_title": "📌 {title} (`{session_id}`)",
    "gateway.title.current_no_title": "📌 No title (`{session_id}`). Set one: `/title words`",
    "gateway.title.empty_after_clean": "⚠️ Nothing usable is left of that title.",
    "gateway.title.not_found": "⚠️ This conversation is not stored yet.",
    "gateway.compress.not_enough": "There is too little conversation to compress.",
    "gateway.compress.nothing_to_do": "There is nothing to compress.",
    "gateway.usage.no_data": "Nothing is known of this conversation's usage yet.",
    "gateway.set_home.success": "✅ **{name}** (`{chat_id}`) is the home device now.",
    "gateway.set_home.save_failed": "⚠️ The home device could not be kept: {error}",
    "gateway.notify.no_home_channel": (
        "📬 No home device is set: it gets what has no address, like the results of jobs. "
        "Make this one it with {sethome_cmd}."
    ),
    "gateway.model.current_label": "Model: `{model}` ({provider})",
    "gateway.model.current_tag": " (in use)",
    "gateway.model.switched": "Model: `{model}`",
    "gateway.model.session_only_hint": "For this conversation only.",
    "gateway.model.saved_global": "Kept for all conversations.",
    "gateway.model.usage_switch_model": "`/model NAME` takes another model.",
    "gateway.model.usage_switch_provider": "`/model NAME --provider NAME`: another provider, too.",
    "gateway.model.usage_persist": "`--global` behind it keeps the choice.",
    "gateway.model.error_prefix": "⚠️ {error}",
    # While a turn runs
    "gateway.busy.ack": "{head}{detail}{tail}",
    "gateway.busy.ack_detail_wrap": " ({detail})",
    "gateway.busy.ack_detail_joiner": ", ",
    "gateway.busy.elapsed_min": "{minutes} min",
    "gateway.busy.running_tool": "at {tool}",
    "gateway.busy.interrupting_head": "⚡ Interrupting what is running",
    "gateway.busy.interrupting_tail": ". Your message comes next.",
    "gateway.busy.queued_head": "⏳ Noted for later",
    "gateway.busy.queued_tail": ". It comes after what is running.",
    "gateway.busy.demoted_tail": ". Your message waits.",
    "gateway.busy.steered_head": "⏩ Passed on to what is running",
    "gateway.busy.steered_tail": ".",
    "gateway.busy.steered_subagents_head": "⏩ Passed on to the agent's helpers",
    "gateway.busy.steered_subagents_tail": ".",
    "gateway.busy.redirected_head": "⏩ Changing course",
    "gateway.busy.redirected_tail": ".",
    "gateway.busy.subagent_working_head": "⏳ The agent's helpers are at work",
    "gateway.busy.compressing_head": "⏳ The conversation is being compressed",
    "gateway.busy.another_turn_running": "⏳ Another turn of this conversation is running.",
    "gateway.busy.slash_rejected": "⏳ `/{command}` has to wait for the turn's end, or /stop it.",
    "gateway.busy.action_restarting": "restarting",
    "gateway.busy.action_shutting_down": "shutting down",
    "gateway.busy.drain_queued": "⏳ The gateway is {action}; your message comes afterwards.",
    "gateway.busy.drain_rejected": "⏳ The gateway is {action}: send this again afterwards.",
    "gateway.busy.drain_rejected_new_work": "⏳ The gateway is {action}: begin this afterwards.",
    "gateway.busy.draining_maintenance": "⏳ The gateway is being serviced: try again later.",
    "gateway.queue.queued": "⏳ Noted: it comes after what is running.",
    "gateway.queue.queued_depth": "⏳ Noted: {depth} wait.",
    "gateway.steer.queued": "⏩ Passed on: {preview}",
    "gateway.progress.timeout_header": "⏱️ Nothing has happened for {minutes} minutes.",
    "gateway.progress.timeout_hint": "The turn was ended. Send the message again to go on.",
    "gateway.progress.working_heartbeat": "⏳ Working for {minutes} min{detail}",
    # When something fails
    "gateway.errors.generic_failed": (
        "⚠️ The model's provider failed, also after retries. The gateway's log has the details."
    ),
    "gateway.errors.generic_failed_with_hint": (
        "⚠️ The model's provider failed, also after retries. {hint}"
    ),
    "gateway.errors.hint_rate_limited": "It limits how often it may be asked: try again later.",
    "gateway.errors.hint_rejected": "It rejected the request.",
    "gateway.errors.hint_usage_limit": "Its usage limit is reached.",
    "gateway.errors.hint_usage_limit_resets": "Its usage limit is reached, for {hours} hours.",
    "gateway.errors.provider_kept_failing": "⚠️ The model's provider kept failing.",
    "gateway.errors.rate_limited": "⏳ The model's provider asks for a pause: try again later.",
    "gateway.errors.usage_limit_resets": "⏳ The provider's usage limit is reached: {window}.",
    "gateway.errors.no_credentials": "⚠️ The model's provider has no valid key.",
    "gateway.errors.no_response": "⚠️ The model did not answer. Try again.",
    "gateway.errors.unexpected_silence": "⚠️ The model said nothing. Try again.",
    "gateway.errors.empty_response_model_label": "the model",
    "gateway.errors.context_overflow": "⚠️ The conversation is too long: /compress it, or /new.",
    "gateway.errors.processing_incomplete": "⚠️ The turn was not completed. Try again.",
    "gateway.errors.stopped_before_finishing": "⚠️ The turn ended early: {reason}",
    "gateway.errors.interrupted_before_start": "⚠️ The turn was interrupted before it began.",
    "gateway.errors.history_unavailable": "⚠️ The conversation could not be read.",
    "gateway.errors.session_storage_unavailable": "⚠️ Conversations cannot be stored right now.",
    "gateway.notify.turn_error": "⚠️ Something went wrong. The gateway's log has the details.",
    "gateway.notify.turn_error_detailed": "⚠️ Something went wrong: {error_type}: {error_detail}",
    "gateway.notify.turn_error_no_details": "⚠️ Something went wrong.",
    "gateway.notify.delivery_failed_retry": "⚠️ The answer could not be delivered: ask again.",
    "gateway.shared.error_prefix": "⚠️ {error}",
    "gateway.shared.warn_passthrough": "⚠️ {error}",
    "gateway.shared.unknown_error": "unknown error",
    "gateway.shared.unknown_value": "unknown",
    "gateway.shared.none_value": "none",
    "gateway.shared.none_marker": "(none)",
    "gateway.shared.session_db_unavailable": "⚠️ Conversations cannot be stored right now.",
    "gateway.shared.agent_running_retry_later": "⏳ After the turn's end: `/{command}` again.",
    # Starts and stops
    "gateway.shutdown.action_restarting": "restarting",
    "gateway.shutdown.action_shutting_down": "shutting down",
    "gateway.shutdown.notice_restart": "⚠️ The gateway restarts; this turn goes on afterwards.",
    "gateway.shutdown.notice_shutdown": "⚠️ The gateway shuts down; this turn is interrupted.",
    "gateway.startup.online": "✅ The gateway is back.",
    "gateway.startup.restarted": "♻️ The gateway has restarted.",
    "gateway.restart.restarting": "♻️ The gateway restarts.",
    "gateway.restart.in_progress": "♻️ The gateway is restarting already.",
    "gateway.draining": "⏳ Waiting for {count} turns to end.",
    # /status
    "gateway.status.header": "📊 **Status**",
    "gateway.status.session_id": "**Session:** `{session_id}`",
    "gateway.status.title": "**Title:** {title}",
    "gateway.status.created": "**Begun:** {timestamp}",
    "gateway.status.last_activity": "**Last activity:** {timestamp}",
    "gateway.status.model": "**Model:** `{model}`",
    "gateway.status.model_provider": "**Model:** `{model}` ({provider})",
    "gateway.status.context": "**Context:** {used} of {total} ({pct} %)",
    "gateway.status.context_used": "**Context:** {used}",
    "gateway.status.tokens": "**Tokens:** {tokens}",
    "gateway.status.agent_running": "**Running:** {state}",
    "gateway.status.state_yes": "yes",
    "gateway.status.state_no": "no",
    "gateway.status.queued": "**Waiting messages:** {count}",
    "gateway.status.platforms": "**Connected:** {platforms}",
    # Voice messages
    "gateway.voice.transcript_echo": "🎙️ {user}: {text}",
    "gateway.voice.transcript_echo_short": "🎙️ {text}",
}


def add_to(ctx: Any) -> int:
    """Add the texts that this Hermes lacks, by its plugin context; how many they are."""
    register = getattr(ctx, "register_locale", None)
    if register is None:  # an older Hermes, whose texts stand in its code
        return 0
    try:
        missing = _missing()
        if missing:
            register(LANGUAGE, missing)
    except Exception as error:
        log.warning("Hermes' own texts may show as their names: %s", type(error).__name__)
        return 0
    return len(missing)


def _missing() -> dict[str, str]:
    """The texts of `ENGLISH` that Hermes shows by their names."""
    module = importlib.import_module("agent.i18n")
    folder = getattr(module, "_locales_dir", None)
    # With its file there Hermes would have to read all of it to tell, in each of its processes.
    if folder is not None and (folder() / f"{LANGUAGE}.yaml").is_file():
        return {}
    if module.t(_KNOWN_NAME, LANGUAGE) != _KNOWN_NAME:
        return {}
    return {name: text for name, text in ENGLISH.items() if module.t(name, LANGUAGE) == name}
