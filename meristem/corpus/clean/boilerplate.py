"""Boilerplate removal: menus, cookie and copyright notices, share buttons, footers and repeated lines.

Three rules: a line that consists of a known phrase is removed anywhere; a line of menu words, links or separators only
at the top and bottom; a repeated line only if it is one that prose would not repeat.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from itertools import takewhile

from meristem.corpus.document import Document

MAX_NOTICE_CHARS = 300
"""Longest line, in characters, that can be a notice."""

MIN_REPEATS = 3
"""A line that occurs this often in one document is suspicious."""

MIN_REPEATED_LINE_BYTES = 80
"""Size in bytes from which no verse or heading repeats; a Chinese character has three."""

STRIP_CHARS = " \t\u00a0\u3000.!:：>»›→▶▼▲↑↓←«‹…|•·*-–—[]()（）【】#+✕×"

# Whole lines, without surrounding symbols, in lower case.
KNOWN_LINES = """
accept all cookies|accept cookies|accept all|cookie policy|cookie settings|cookie preferences|manage cookies
share this|share this article|share this post|share this story|share this page|share on facebook
share on twitter|share on linkedin|share on whatsapp|share via email|share with friends|tweet this|pin it
email this|email this article|follow us|follow us on facebook|follow us on twitter|follow us on instagram
follow me on twitter|like us on facebook|read more|read more about this|continue reading|keep reading
read the full story|read full article|learn more|show more|load more|see more|view more|view all|see all
click here|click here to read more|click to enlarge|expand|show less|back to top|go to top|top of page
skip to content|skip to main content|skip to navigation|jump to navigation|toggle menu|toggle navigation
open menu|close menu|main menu|search this site|print this page|print this article|print friendly
subscribe to our newsletter|sign up for our newsletter|subscribe now|sign up now|sign in to comment
log in to reply|log in to post comments|forgot your password|forgot password|remember me|create an account
create account|leave a comment|leave a reply|post a comment|add a comment|add comment|write a comment
comments are closed|no comments|no comments yet|be the first to comment|your email address will not be published
required fields are marked|cancel reply|related articles|related posts|related stories|related content
you may also like|you might also like|recommended for you|more from this author|more stories|recent posts
recent comments|popular posts|most read|trending now|previous post|next post|previous article|next article
older posts|newer posts|older entries|newer entries|advertisement|advertisements|advertising|sponsored content
sponsored|story continues below advertisement|article continues below advertisement|all rights reserved
terms and conditions|terms of use|terms of service|privacy policy|terms & conditions|report abuse|add to cart
add to wishlist|add to basket|proudly powered by wordpress|powered by wordpress|edit this page|page not found
weiterlesen|mehr lesen|mehr erfahren|zum inhalt springen|nach oben|zurück nach oben|diesen artikel teilen|teilen
jetzt teilen|alle rechte vorbehalten|datenschutzerklärung|cookies akzeptieren|alle akzeptieren
newsletter abonnieren|kommentar schreiben|schreibe einen kommentar|ähnliche artikel
das könnte sie auch interessieren|anzeige|werbung|lire la suite|en savoir plus|partager|partager cet article
tous droits réservés|retour en haut|mentions légales|politique de confidentialité|accepter les cookies
laisser un commentaire|articles similaires|publicité|leer más|seguir leyendo|más información|compartir
comparte este artículo|todos los derechos reservados|política de cookies|política de privacidad|aviso legal
volver arriba|deja un comentario|artículos relacionados|publicidad|阅读更多|阅读全文|查看更多|查看全文|展开全文
点击查看|点击这里|点击进入|点击下载|上一篇|下一篇|上一页|下一页|返回顶部|回到顶部|返回首页|分享到|分享|分享本文
关注我们|扫一扫|扫码关注|相关阅读|相关文章|相关推荐|相关新闻|猜你喜欢|热门推荐|推荐阅读|免责声明|版权声明
版权所有|联系我们|关于我们|网站地图|设为首页|加入收藏|发表评论|暂无评论|广告|閱讀更多|閱讀全文|版權所有
分享到微博
"""
KNOWN_PHRASES = frozenset(KNOWN_LINES.strip().replace("\n", "|").split("|"))

# Words of menus; a line with no other words, at the top or bottom of a document, is a menu.
MENU_WORDS = """
home homepage menu navigation search about us contact blog news login log in sign up register faq help support
shop store cart account my profile sitemap site map careers jobs press privacy policy terms cookies imprint
legal newsletter subscribe products services gallery events forum forums archive archives categories category
tags tag rss feed facebook twitter instagram youtube linkedin pinterest whatsapp tiktok email print share
english deutsch français español 中文 logout settings startseite impressum datenschutz kontakt agb suche
anmelden über uns accueil contactez nous rechercher connexion inicio contacto buscar 首页 登录 注册 搜索 新闻
论坛 帮助 产品 服务 下载 微博 微信 客户端 手机版 next previous prev first last back
"""
MENU_VOCABULARY = frozenset(MENU_WORDS.split())
_NEVER_TITLES = (
    "home|homepage|menu|navigation|search|sitemap|login|log in|sign in|sign up|register|faq|about us|contact us|logout"
    "|rss|startseite|impressum|anmelden|accueil|inicio|首页|登录|注册"
)
NEVER_TITLES = frozenset(_NEVER_TITLES.split("|"))
"""Menu words that are never a title, even alone."""

JAVASCRIPT_NOTICE = (
    r"(?:enable|activate|turn on|switch on) (?:your )?javascript|(?:requires|needs) javascript (?:to|in order|enabled)"
    r"|javascript (?:is|seems to be|appears to be|must be|needs to be)(?: currently)?"
    r" (?:disabled|enabled|turned off|required|blocked|not supported|not enabled)"
    r"|browser (?:does not|doesn't) support javascript|javascript aktivieren|aktivieren sie javascript"
    r"|acti(?:ver|vez|var|ve) (?:le |el )?javascript|(?:启用|开启) ?javascript"
)
"""A notice that a page needs JavaScript, in lower case."""

NOTICE_PATTERNS = {
    "cookie": re.compile(
        r"(?:we|this (?:web)?site|our (?:web)?site|the site)(?: and our partners)? uses? cookies\b.*"
        r"|by (?:continuing|using|browsing|clicking)\b.*\bcookies?\b.*|.*\bour use of cookies\b.*"
        r"|.*\byou (?:agree|consent|accept)\b.*\bcookies\b.*|diese (?:web)?s(?:e)?ite (?:verwendet|nutzt) cookies.*"
        r"|(?:ce site|nous) (?:utilise|utilisons) des cookies.*|(?:este sitio|esta web|utilizamos)\b.*\bcookies\b.*"
    ),
    "javascript": re.compile(f".{{0,80}}(?:{JAVASCRIPT_NOTICE}).{{0,80}}"),
    "©": re.compile(r"(?:copyright )?©.{0,160}|.{0,60}© ?(?:19|20)\d\d.{0,100}"),
    "copyright": re.compile(r"copyright (?:\(c\)|©|(?:19|20)\d\d).{0,160}"),
    "rights reserved": re.compile(r".{0,160}all rights reserved\W*.{0,40}"),
    "newsletter": re.compile(r"(?:subscribe to|sign up (?:for|to)|join|get) (?:our|the|my)\b.{0,60}newsletter.{0,60}"),
    "comment": re.compile(r"\d+ comments?|(?:log|sign) in to (?:leave a |post a )?(?:comment|reply)s?.{0,20}"),
    "post": re.compile(r"posted (?:by|on|in|at)\b.{0,80}\d{4}.{0,40}"),
    "filed under": re.compile(r"filed under:?.{0,120}"),
    "page ": re.compile(r"page \d+(?: of \d+)?"),
    "share": re.compile(r"(?:click to )?share (?:this )?(?:on|via|with) \w+(?: \(opens in new window\))?"),
    "icp": re.compile(r".{0,40}[京沪粤浙苏鲁川渝津冀闽鄂湘豫皖陕]icp[备证].{0,60}"),
    "版权所有": re.compile(r".{0,60}版权所有.{0,60}"),
    "转载": re.compile(r".{0,30}(?:未经许可|未经授权|转载请注明).{0,60}"),
}
LINKS_ONLY = re.compile(r"(?:(?:https?://|www\.)\S+[\s|,•·]*)+")
ITEM_SEPARATOR = re.compile(r"\s*[|»›·•▪]\s*|\s+/\s+|\s{3,}|\t")
WIDGET_LINE = re.compile(
    r"(?:reply|report|share|quote|like|permalink|download|tweet|print|follow|subscribe"
    r"|flag|edit|delete|embed|log ?in|sign in)"
    r"(?: (?:to )?(?:this|the|post|abuse|comment|message|now|link|page|article|story|thread|us|author)){0,3}"
    r"|view (?:details|profile|all|post|cart|more)|(?:buy|shop|order) now|add to \w+|(?:click|tap) (?:here|to)\b.{0,20}"
    r"|\d+ (?:votes?|likes?|shares?|views?|comments?|replies|points?)"
    r"|(?:posted )?\d+ (?:minute|hour|day|week|month|year)s? ago"
    r"|advertis\w+|回复|举报|点赞|收藏|分享|下载|登录|查看|删除|引用"
)
WORD = re.compile(r"[^\W\d_]+")
EXTRA_BLANK_LINES = re.compile(r"\n{3,}")


def remove_boilerplate(document: Document) -> Document:
    """The document without boilerplate lines; order and paragraphs are preserved."""
    lines = document.text.split("\n")
    removed = boilerplate_lines(lines)
    if not removed:
        return document
    text = "\n".join(line for number, line in enumerate(lines) if number not in removed)
    notes = (*document.notes, ("boilerplate lines", len(removed)))
    return replace(document, text=EXTRA_BLANK_LINES.sub("\n\n", text).strip(), notes=notes)


def boilerplate_lines(lines: list[str]) -> set[int]:
    """The indices of the boilerplate lines."""
    lowered = [line.strip().lower() for line in lines]
    short_lines = "\n".join(line for line in lowered if len(line) <= MAX_NOTICE_CHARS)
    notices = [pattern for keyword, pattern in NOTICE_PATTERNS.items() if keyword in short_lines]
    removed = {number for number, line in enumerate(lowered) if line and _is_notice(line, notices)}
    removed |= _repeated_lines(lowered, removed)
    for numbers in (range(len(lines)), range(len(lines) - 1, -1, -1)):
        remaining = (number for number in numbers if lowered[number] and number not in removed)
        edge_lines = list(takewhile(lambda number: _is_menu(lowered[number]), remaining))
        if len(edge_lines) > 1 or (edge_lines and not _is_title(lowered[edge_lines[0]])):
            removed.update(edge_lines)
    return removed


def _is_notice(line: str, notices: list[re.Pattern[str]]) -> bool:
    """Whether a line, in lower case, is a notice, wherever it occurs."""
    if len(line) > MAX_NOTICE_CHARS:
        return False
    return line.strip(STRIP_CHARS) in KNOWN_PHRASES or any(pattern.fullmatch(line) for pattern in notices)


def _is_menu(line: str) -> bool:
    """Whether a line consists of menu words, of links, or of short items between separators."""
    if len(line) > MAX_NOTICE_CHARS:
        return False
    if LINKS_ONLY.fullmatch(line):
        return True
    words = WORD.findall(line)
    if words and all(word in MENU_VOCABULARY for word in words):
        return True
    items = [item for item in ITEM_SEPARATOR.split(line.strip(STRIP_CHARS)) if item]
    known = sum(all(word in MENU_VOCABULARY for word in item.split()) for item in items)
    return len(items) >= 3 and known >= 2 and all(len(item) <= 30 for item in items)


def _is_title(line: str) -> bool:
    """Whether a menu word on a line of its own may be the title of the text."""
    stripped = line.strip(STRIP_CHARS)
    return (
        stripped not in NEVER_TITLES
        and len(WORD.findall(stripped)) < 3
        and not ITEM_SEPARATOR.search(stripped)
        and not LINKS_ONLY.fullmatch(line)
    )


def _repeated_lines(lowered: list[str], removed: set[int]) -> set[int]:
    """Repeated buttons, all of them; repeated long lines, except the first."""
    counts = Counter(line for number, line in enumerate(lowered) if line and number not in removed)
    if not counts or counts.most_common(1)[0][1] < MIN_REPEATS:
        return set()
    frequent = {line for line, count in counts.items() if count >= MIN_REPEATS}
    buttons = {line for line in frequent if WIDGET_LINE.fullmatch(line.strip(STRIP_CHARS))}
    long_lines = {
        line for line in frequent - buttons if len(line.encode("utf-8", "surrogatepass")) >= MIN_REPEATED_LINE_BYTES
    }
    repeated, seen = set(), set[str]()
    for number, line in enumerate(lowered):
        if line in buttons or (line in long_lines and line in seen):
            repeated.add(number)
        seen.add(line)
    return repeated - removed
