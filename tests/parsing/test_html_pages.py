"""HTML: whole pages of the kinds that people save, with what surrounds the content on them."""

from __future__ import annotations

from collections.abc import Callable

from rag_cluster.domain.blocks import BlockType, ParsedDocument

Parse = Callable[..., ParsedDocument]

NEWS = """<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>Dam passes test - Valley Herald</title>
<meta name="description" content="The dam held."><script>dataLayer=[]</script><style>.a{}</style></head><body>
<a class="skip-link" href="#main">Skip to main content</a>
<div id="cookie-consent-banner" class="cookie-banner"><p>We value your privacy.</p><button>Accept all</button></div>
<header class="site-header"><div class="logo"><a href="/">Valley Herald</a></div>
<nav class="main-nav"><ul><li><a href="/news">News</a></li><li><a href="/sport">Sport</a></li></ul></nav>
<form class="search"><input type="search" placeholder="Search"><button>Go</button></form></header>
<div class="ad-slot ads">Buy our boots now</div>
<div class="container"><article class="story"><header><p class="kicker">Local</p><h1>Dam passes its first test</h1>
<p class="byline">By <a href="/a/1">Ann Reed</a>, <time datetime="2025-03-01">1 March 2025</time></p></header>
<div class="share-buttons"><a href="#">Facebook</a> <a href="#">X</a> <a href="#">Email</a></div>
<p class="lead">The rebuilt Oxbow dam held <strong>4.2 million</strong> cubic metres on Saturday.</p>
<figure><picture><source srcset="d.webp"><img src="d.jpg" alt="The dam from the east"></picture>
<figcaption>The dam on Saturday. Photo: R. Hill</figcaption></figure>
<p>Engineers opened the gates at noon. See <a href="/b">our earlier report</a> for the plans.</p>
<blockquote class="pullquote"><p>We slept well.</p></blockquote>
<h2>What happens next</h2><ul><li>Second filling in May</li><li>Report in June</li></ul>
<aside class="related-links"><h3>Related</h3><ul><li><a href="/1">Floods of 1998</a></li><li><a href="/2">The mill</a>
</li></ul></aside>
<p>The council votes on Tuesday.</p></article>
<aside class="sidebar"><h3>Most read</h3><ol><li><a href="/3">Cat stuck</a></li><li><a href="/4">Fair opens</a></li>
</ol></aside></div>
<div class="newsletter-signup"><h3>Get our newsletter</h3><p>Sign up today.</p></div>
<footer><p>© 2025 Valley Herald</p><nav><a href="/imprint">Imprint</a></nav></footer></body></html>"""

DOCS = """<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>Configure — Pumpctl 2.1</title></head>
<body class="docs wy-body"><div class="topbar"><a href="/">Pumpctl</a></div>
<div class="wrapper"><div class="sphinxsidebar sidebar" role="navigation" aria-label="Main"><h3>Contents</h3>
<ul><li><a href="#a">Install</a></li><li class="current"><a href="#b">Configure</a><ul><li><a href="#c">Options</a>
</li></ul></li></ul></div>
<div class="document"><div class="body" role="main"><nav class="breadcrumb"><a href="/">Docs</a> » Configure</nav>
<section id="configure"><h1>Configure<a class="headerlink" href="#configure">¶</a></h1>
<p>Settings live in <code>pumpctl.toml</code>. Start the service with:</p>
<div class="highlight-console notranslate">
<div class="highlight"><pre><span class="gp">$ </span>pumpctl run --port 8080
</pre></div></div>
<div class="admonition note"><p class="admonition-title">Note</p><p>A restart is needed.</p></div>
<h2>Options<a class="headerlink" href="#options">¶</a></h2>
<table class="docutils"><thead><tr><th>Option</th><th>Default</th><th>Meaning</th></tr></thead>
<tbody><tr><td><code>port</code></td><td>8080</td><td>Where it listens</td></tr>
<tr><td><code>retries</code></td><td>3</td><td><ul><li>per request</li><li>not per host</li></ul></td></tr></tbody>
</table>
<pre><code class="language-toml">[pump]
port = 8080

  [pump.log]
  level = "info"
</code></pre>
<dl class="option"><dt><code>--quiet</code></dt><dd><p>Say nothing.</p></dd><dt><code>--dry-run</code></dt><dd>
<p>Do nothing.</p></dd></dl>
<details><summary>Old names</summary><p>Before 2.0 the option was called <code>listen</code>.</p></details></section>
<div class="related prev-next"><a href="p">Previous: Install</a> <a href="n">Next: Run</a></div></div></div></div>
<div class="footer">Built with Sphinx.</div></body></html>"""

FORUM = """<!DOCTYPE html><html><head><meta charset="utf-8"><title>Pump does not start - Q&amp;A</title></head><body>
<header><a href="/">HydroExchange</a><nav><a href="/q">Questions</a><a href="/tags">Tags</a></nav></header>
<div id="content"><h1>Pump does not start after power cut</h1>
<div class="question"><div class="vote"><button>▲</button><span>12</span></div><div class="post-text">
<p>Since the power cut my pump only hums.</p>
<pre><code>E17 overcurrent</code></pre><p>What can I do?</p></div>
<div class="post-taglist tags"><a href="/t/pump">pump</a> <a href="/t/power">power</a></div>
<div class="comments"><div class="comment"><span>Which model is it?</span> – <a href="/u/2">kim</a></div></div></div>
<div class="answer accepted"><div class="post-text"><p>The <b>capacitor</b> is dead. Replace it:</p>
<ol><li>Switch off the mains</li><li>Discharge the capacitor<ul><li>with a resistor</li>
<li>never with a screwdriver</li></ul></li><li>Fit a new one</li></ol></div></div>
<div class="answer"><div class="post-text"><blockquote><p>only hums</p></blockquote><p>Check the impeller too.</p>
</div></div></div>
<div class="sidebar"><h4>Hot questions</h4><ul><li><a href="/5">Why is water wet?</a></li>
<li><a href="/6">Best pipe?</a></li></ul></div>
<footer><a href="/legal">Legal</a></footer></body></html>"""

PRODUCT = """<html><head><meta charset="utf-8"><title>Valve V7</title></head><body>
<div class="navbar"><a href="/">Shop</a><a href="/cart">Cart (0)</a></div>
<div class="product"><h1>Gate valve V7</h1>
<img src="v7.jpg" alt="Gate valve V7, red handwheel" width="400" height="300">
<p class="price">€ 149.00 <s>€ 179.00</s></p><form>
<label>Quantity</label><select><option>1</option><option>2</option></select><button>Add to cart</button></form>
<h2>Specifications</h2><table class="specs"><tr><th>Size</th><td>DN 50</td></tr><tr><th>Pressure</th><td>PN 16</td>
</tr>
<tr><th>Material</th><td>Ductile iron<br>GGG 40</td></tr></table>
<h2>Variants</h2><table><caption>Prices without VAT</caption><thead><tr><th rowspan="2">Size</th>
<th colspan="2">Price</th></tr>
<tr><th>one</th><th>ten</th></tr></thead><tbody><tr><td>DN 50</td><td>149</td><td>135</td></tr><tr><td>DN 80</td>
<td>199</td><td>180</td></tr></tbody></table></div>
<div hidden>Internal: margin 40 %</div>
<div style="display:none">tracking</div><span class="sr-only">Opens in a new window</span></body></html>"""

CHINESE = """<html><head><meta http-equiv="Content-Type" content="text/html; charset=gb2312">
<title>清河港岸桥检修规程</title></head>
<body><table width="100%"><tr><td><div id="nav"><a href="/">首页</a> | <a href="/xw">新闻</a> | <a href="/gg">公告</a>
</div></td></tr>
<tr><td><h1>清河港岸桥检修规程</h1><p>发布时间：2025年3月1日　来源：设备处</p>
<p>　　第一条　岸桥制动器间隙应当每日检查，
标准值为0.8毫米。</p><p>　　第二条　检查结果由<b>值班工程师</b>签字确认。</p>
<table border="1"><tr><td>项目</td><td>标准值</td></tr><tr><td>制动器间隙</td><td>0.8毫米</td></tr><tr><td>轮压</td>
<td>25吨</td></tr></table>
</td></tr><tr><td><div class="footer"><a href="/gy">关于我们</a> <a href="/lx">联系我们</a></div></td></tr></table>
</body></html>"""

TABLE_ONLY = """<html><body><table><tr><th>Station</th><th>Level</th></tr><tr><td>North</td><td>1.2</td></tr>
<tr><td>South</td><td>0.9</td></tr></table></body></html>"""


def seen(document: ParsedDocument) -> list[tuple[str, str]]:
    return [(b.type.value, b.content) for b in document.blocks if b.type is not BlockType.TABLE]


def grids(document: ParsedDocument) -> list[list[list[str]]]:
    return [b.metadata["rows"] for b in document.blocks if b.type is BlockType.TABLE]


def test_a_news_article_is_its_headline_text_picture_and_quote(parse: Parse) -> None:
    document = parse("news.html", NEWS)
    assert seen(document) == [
        ("text", "Local"),
        ("heading", "Dam passes its first test"),
        ("text", "By Ann Reed, 1 March 2025"),
        ("text", "The rebuilt Oxbow dam held 4.2 million cubic metres on Saturday."),
        ("image", "The dam on Saturday. Photo: R. Hill\nThe dam from the east"),
        ("text", "Engineers opened the gates at noon. See our earlier report for the plans."),
        ("quote", "We slept well."),
        ("heading", "What happens next"),
        ("list", "Second filling in May"),
        ("list", "Report in June"),
        ("text", "The council votes on Tuesday."),
    ]
    assert document.metadata["title"] == "Dam passes test - Valley Herald" and document.metadata["language"] == "en"


def test_a_documentation_page_keeps_code_tables_options_and_notes_and_loses_its_sidebar(parse: Parse) -> None:
    document = parse("docs.html", DOCS)
    assert seen(document) == [
        ("heading", "Configure"),
        ("text", "Settings live in pumpctl.toml. Start the service with:"),
        ("code", "$ pumpctl run --port 8080"),
        ("text", "Note"),
        ("text", "A restart is needed."),
        ("heading", "Options"),
        ("code", '[pump]\nport = 8080\n\n  [pump.log]\n  level = "info"'),
        ("list", "--quiet\nSay nothing."),
        ("list", "--dry-run\nDo nothing."),
        ("text", "Old names"),
        ("text", "Before 2.0 the option was called listen."),
    ]
    assert grids(document) == [
        [
            ["Option", "Default", "Meaning"],
            ["port", "8080", "Where it listens"],
            ["retries", "3", "per request\nnot per host"],
        ]
    ]
    code = [b.metadata.get("language") for b in document.blocks if b.type is BlockType.CODE]
    assert code == ["console", "toml"]


def test_a_question_keeps_its_answers_and_comments(parse: Parse) -> None:
    content = seen(parse("forum.html", FORUM))
    assert [c for c in content if c[1] not in ("12",)] == [
        ("heading", "Pump does not start after power cut"),
        ("text", "Since the power cut my pump only hums."),
        ("code", "E17 overcurrent"),
        ("text", "What can I do?"),
        ("text", "Which model is it? – kim"),
        ("text", "The capacitor is dead. Replace it:"),
        ("list", "Switch off the mains"),
        ("list", "Discharge the capacitor"),
        ("list", "with a resistor"),
        ("list", "never with a screwdriver"),
        ("list", "Fit a new one"),
        ("quote", "only hums"),
        ("text", "Check the impeller too."),
    ]


def test_a_product_page_keeps_its_tables_and_loses_forms_and_hidden_text(parse: Parse) -> None:
    document = parse("product.html", PRODUCT)
    texts = [content for _, content in seen(document)]
    assert texts == ["Gate valve V7", "Gate valve V7, red handwheel", "€ 149.00 € 179.00", "Quantity", "Specifications",
                     "Variants", "Prices without VAT"]  # fmt: skip
    assert grids(document) == [
        [["Size", "DN 50"], ["Pressure", "PN 16"], ["Material", "Ductile iron\nGGG 40"]],
        [["Size", "Price", "Price"], ["Size", "one", "ten"], ["DN 50", "149", "135"], ["DN 80", "199", "180"]],
    ]
    assert [b.metadata["header_rows"] for b in document.blocks if b.type is BlockType.TABLE] == [0, 2]


def test_a_chinese_page_of_tables_in_gb2312_is_read_as_text_and_its_inner_table_as_one(parse: Parse) -> None:
    document = parse("guicheng.html", CHINESE.encode("gb2312"))
    assert seen(document) == [
        ("heading", "清河港岸桥检修规程"),
        ("text", "发布时间：2025年3月1日　来源：设备处"),
        ("text", "第一条　岸桥制动器间隙应当每日检查，标准值为0.8毫米。"),
        ("text", "第二条　检查结果由值班工程师签字确认。"),
    ]
    assert grids(document) == [[["项目", "标准值"], ["制动器间隙", "0.8毫米"], ["轮压", "25吨"]]]
    assert document.metadata["encoding"] == "gb18030"


def test_a_page_that_is_one_table_is_that_table(parse: Parse) -> None:
    document = parse("levels.html", TABLE_ONLY)
    assert grids(document) == [[["Station", "Level"], ["North", "1.2"], ["South", "0.9"]]] and len(document.blocks) == 1
